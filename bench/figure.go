package main

// Figure is one measured thing, beside what it is compared with.
type Figure struct {
	Group   string  `json:"group"`
	Name    string  `json:"name"`
	Floor   string  `json:"floor"`
	Measure string  `json:"measure"`
	Setting setting `json:"setting"`
	Value   spread  `json:"value"`
	Base    spread  `json:"base"`  // the floor in the same rounds
	Ratio   spread  `json:"ratio"` // of the two, round by round
}

// What is measured. CPU, WAL and trips are for each call, rates are of rows.
const (
	measureRate  = "rows/s"
	measureCPU   = "server CPU, µs"
	measureWAL   = "WAL, bytes"
	measureTrips = "round trips"
	measureP50   = "p50, ms"
	measureP99   = "p99, ms"
	measureShare = "share of the floor"
)
