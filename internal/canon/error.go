package canon

import "strconv"

// Error says why a text is not a JSON value that jsonb can hold. It carries no
// part of the text: payloads are secret.
type Error struct {
	Offset int    // where, in bytes from the start of the text
	Reason string // what is wrong, one of a fixed set of phrases
}

// Error returns the reason and the offset.
func (e *Error) Error() string {
	return e.Reason + " at byte " + strconv.Itoa(e.Offset)
}

// Reasons are constants, so that no byte of a text can get into one.
const (
	reasonTooLong        = "a text longer than 32 MiB"
	reasonByteOrderMark  = "a byte order mark"
	reasonInvalidUTF8    = "invalid UTF-8"
	reasonEnd            = "unexpected end"
	reasonTrailing       = "not one JSON value: more follows"
	reasonValue          = "no JSON value where one is expected"
	reasonArray          = "neither a comma nor the end of the array"
	reasonObject         = "neither a comma nor the end of the object"
	reasonName           = "no member name where one is expected"
	reasonColon          = "no colon after a member name"
	reasonDepth          = "nesting deeper than 10000"
	reasonControl        = "an unescaped control character in a string"
	reasonEscape         = "an escape that JSON does not have"
	reasonHex            = `a \u escape without four hexadecimal digits`
	reasonNull           = `the escape \u0000, which jsonb cannot hold`
	reasonSurrogate      = "an unpaired surrogate escape"
	reasonLeadingZero    = "a number with a leading zero"
	reasonDigit          = "a number without a digit where one is expected"
	reasonNumeric        = "a number beyond PostgreSQL's numeric"
	reasonWritten        = "numbers that PostgreSQL would write out at more than 32 MiB"
	reasonNumericDecimal = "a number with more decimal places than PostgreSQL's numeric has"
)
