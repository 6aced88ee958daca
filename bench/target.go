package main

// A target is a bound on a ratio (or, for a latency and for trips, on the value
// itself) that the median of a run should keep.
type target struct {
	name    string
	group   string
	of      string
	than    string // the other side; "" is any
	measure string
	set     setting
	most    float64 // 0: there is a least
	least   float64
	value   bool // the value itself is bounded
}

func lone(durable bool) setting { return setting{Conns: 1, Payload: 200, Durable: durable} }

var (
	one      = lone(true)
	sixteen  = setting{Conns: 16, Payload: 200, Durable: true}
	far      = setting{Conns: 1, Payload: 200, Durable: true, Delayed: true}
	workSet  = setting{Conns: 8, Payload: 200, Durable: true}
	startSet = setting{Conns: 4, Payload: 200, Durable: true}
)

// targets are checked in this order.
var targets = []target{
	{name: "accepted, server CPU", group: "accept", of: accept.name, than: rawInsert.name, measure: measureCPU, set: one, most: 1.5},
	{name: "accepted, rate, 1 connection", group: "accept", of: accept.name, than: rawInsert.name, measure: measureRate, set: one, least: 0.75},
	{name: "accepted, rate, 16 connections", group: "accept", of: accept.name, than: rawInsert.name, measure: measureRate, set: sixteen, least: 0.60},
	{name: "accepted, rate, network of 1 ms", group: "accept", of: accept.name, than: rawInsert.name, measure: measureRate, set: far, least: 0.95},
	{name: "accepted, WAL", group: "accept", of: accept.name, than: rawInsert.name, measure: measureWAL, set: one, most: 2.5},
	{name: "accepted, round trips", group: "accept", of: accept.name, than: rawInsert.name, measure: measureTrips, set: one, most: 1.02, value: true},

	{name: "replay, server CPU", group: "repeat", of: replay.name, than: rawSelect.name, measure: measureCPU, set: one, most: 1.6},
	{name: "coalesced, server CPU", group: "repeat", of: coalesce.name, than: rawSelect.name, measure: measureCPU, set: one, most: 1.6},
	{name: "replay, rate, 16 connections", group: "repeat", of: replay.name, than: rawSelect.name, measure: measureRate, set: sixteen, least: 0.60},
	{name: "replay, rate, network of 1 ms", group: "repeat", of: replay.name, than: rawSelect.name, measure: measureRate, set: far, least: 0.95},
	{name: "replay, round trips", group: "repeat", of: replay.name, than: rawSelect.name, measure: measureTrips, set: one, most: 1.02, value: true},
	{name: "coalesced, round trips", group: "repeat", of: coalesce.name, than: rawSelect.name, measure: measureTrips, set: one, most: 1.02, value: true},
	{name: "replaced, round trips", group: "replace", of: replace.name, than: rawUpdate.name, measure: measureTrips, set: one, most: 1.02, value: true},

	{name: "batch of 1,000 fresh / COPY", group: "batch", of: batchFresh.name, than: copyFloor.name, measure: measureRate, set: one, least: 0.45},
	{name: "batch of 1,000 replays / COPY", group: "batch", of: batchReplays.name, than: copyFloor.name, measure: measureRate, set: one, least: 0.85},
	{name: "batch of 1,000, half and half / COPY", group: "batch", of: batchHalf.name, than: copyFloor.name, measure: measureRate, set: one, least: 0.43},

	{name: "beside River: unique insert, 16 connections", group: "accept", of: accept.name, than: peerUnique.name, measure: measureRate, set: sixteen, least: 1.7},
	{name: "beside River: unique insert, network of 1 ms", group: "accept", of: accept.name, than: peerUnique.name, measure: measureRate, set: far, least: 2.5},
	{name: "beside River: duplicate, 16 connections", group: "repeat", of: replay.name, than: peerRepeat.name, measure: measureRate, set: sixteen, least: 6},
	{name: "beside River: batch of 1,000 unique", group: "batch", of: batchFresh.name, than: peerManyUnique.name, measure: measureRate, set: one, least: 2},

	{name: "no-op jobs / claim and delete loop", group: "work", of: ourHouse.name, than: floorHouse.name, measure: measureRate, set: workSet, least: 0.75},
	{name: "no-op jobs beside River at its best", group: "work", of: ourHouse.name, than: peerHouse.name, measure: measureRate, set: workSet, least: 3},
	{name: "start latency, idle worker, p50, ms", group: "start", of: ownStart, than: bareStart, measure: measureP50, set: startSet, most: 2, value: true},
	{name: "start latency, idle worker, p99, ms", group: "start", of: ownStart, than: bareStart, measure: measureP99, set: startSet, most: 10, value: true},
	{name: "1 million waiting / 1 thousand", group: "depth", of: "1000000 waiting", measure: measureRate, set: workSet, least: 0.8},
	{name: "old snapshot held / not held", group: "snapshot", of: snapshotHeld, measure: measureRate, set: workSet, least: 0.8},
	{name: "last minute / first, beside the floor", group: "steady", of: lastBesideFloor, measure: measureShare, set: workSet, least: 0.9},
}

// Names of figures that targets look up.
const (
	ownStart        = "enqueue to handler"
	bareStart       = "bare INSERT, NOTIFY and claim"
	snapshotHeld    = "old snapshot held"
	lastBesideFloor = "last minute / floor"
)

// Verdict says how a target was kept.
type Verdict struct {
	Name     string  `json:"name"`
	Bound    string  `json:"bound"`
	Measured spread  `json:"measured"`
	Kept     bool    `json:"kept"`
	Floor    float64 `json:"floor"` // the other side's median
	Own      float64 `json:"own"`
}

// verdicts are of those targets that the run has measured.
func verdicts(figures []Figure) []Verdict {
	var all []Verdict
	for _, t := range targets {
		for _, f := range figures {
			if f.Group == t.group && f.Name == t.of && f.Measure == t.measure && f.Setting == t.set && (t.than == "" || f.Floor == t.than) {
				all = append(all, t.verdict(f))
			}
		}
	}
	return all
}

func (t target) verdict(f Figure) Verdict {
	v := Verdict{Name: t.name, Measured: f.Ratio, Floor: f.Base.Median, Own: f.Value.Median}
	if t.value {
		v.Measured = f.Value
	}
	if t.most > 0 {
		v.Bound, v.Kept = "at most "+brief(t.most), v.Measured.Median <= t.most
	} else {
		v.Bound, v.Kept = "at least "+brief(t.least), v.Measured.Median >= t.least
	}
	return v
}
