package queue

import (
	"fmt"
	"time"
)

// What timestamptz holds, in seconds since 1970: from the first day of the
// Julian calendar's count to the end of the year 294276.
const (
	earliestSecond = -210866803200
	endSecond      = 9224318016000
)

// microseconds splits an instant, digits finer than a microsecond cut, into
// seconds since 1970 and microseconds; one int64 of microseconds would not
// reach PostgreSQL's last years.
func microseconds(t time.Time) (seconds, micros int64) {
	return t.Unix(), int64(t.Nanosecond() / 1000)
}

// instantText is an instant for a timestamptz parameter sent as text: ISO 8601
// in UTC, which PostgreSQL reads alike under every DateStyle and TimeZone. Nil
// for the zero time.
func instantText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	year, era := t.Year(), ""
	if year <= 0 {
		year, era = 1-year, " BC"
	}
	return new(fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d.%06d+00%s",
		year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond()/1000, era))
}
