package queue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// parseInstant reads an instant that SQL gives as seconds since 1970 in decimal
// digits, which no DateStyle, TimeZone or driver can turn into something else;
// "" is the zero time.
func parseInstant(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(fraction) > 6 {
		return time.Time{}, errors.New("not seconds since 1970")
	}
	micros, err := strconv.ParseInt((fraction + "000000")[:6], 10, 64)
	if err != nil || micros < 0 {
		return time.Time{}, errors.New("not seconds since 1970")
	}
	if strings.HasPrefix(whole, "-") {
		micros = -micros
	}
	return time.Unix(seconds, micros*1000), nil
}

// instants reads several at once.
func instants(into map[*time.Time]string) error {
	for t, text := range into {
		var err error
		if *t, err = parseInstant(text); err != nil {
			return err
		}
	}
	return nil
}
