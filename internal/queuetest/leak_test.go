package queuetest_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// secretText is a text that must not show, in the ways in which it could.
type secretText struct {
	raw     string
	needles map[string]string
}

// secret prepares the search for raw, which must be long and free of blanks.
func secret(raw string) secretText {
	decimal := make([]string, len(raw))
	goHex := make([]string, len(raw))
	for i := range len(raw) {
		decimal[i] = fmt.Sprint(raw[i])
		goHex[i] = fmt.Sprintf("0x%x", raw[i])
	}
	needles := map[string]string{
		"itself":         raw,
		"hex":            hex.EncodeToString([]byte(raw)),
		"spaced hex":     fmt.Sprintf("% x", raw),
		"decimal bytes":  strings.Join(decimal, " "),
		"a Go byte list": strings.Join(goHex, ", "),
		"a JSON list":    strings.Join(decimal, ","),
		"escapes":        strings.ReplaceAll(fmt.Sprintf("% x", " "+raw), " ", `\x`)[2:],
	}
	for shift := range 3 { // base64 of it, wherever it stands in a longer text
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + raw))
		needles[fmt.Sprint("base64 at offset ", shift)] = text[4 : len(text)-4]
	}
	for name, needle := range needles {
		needles[name] = strings.ToLower(needle)
	}
	return secretText{raw, needles}
}

// shown tells in which way the secret shows in text, and where; "" if it doesn't.
func (s secretText) shown(text string) string {
	lower := strings.ToLower(text)
	for name, needle := range s.needles {
		if i := strings.Index(lower, needle); i >= 0 {
			return fmt.Sprintf("%s: …%s…", name, text[max(0, i-40):min(len(text), i+len(needle)+20)])
		}
	}
	return ""
}

// wantAbsent fails the test if the secret shows in text.
func (s secretText) wantAbsent(t testing.TB, where, text string) {
	t.Helper()
	if how := s.shown(text); how != "" {
		t.Errorf("%s shows the secret as %s", where, how)
	}
}

// The search itself must be able to find.
func TestSecretText(t *testing.T) {
	t.Parallel()
	const raw = "Zq9xMARKER77kq"
	s := secret(raw)
	long := "some text before " + raw + " and after"
	for _, text := range []string{
		long, strings.ToUpper(long), fmt.Sprintf("%x", long), fmt.Sprintf("%X", long), fmt.Sprintf("% x", long), fmt.Sprint([]byte(long)), fmt.Sprintf("%#v", []byte(long)),
		fmt.Sprintf("%q", long), base64.StdEncoding.EncodeToString([]byte(long)), base64.StdEncoding.EncodeToString([]byte("x" + long)), base64.StdEncoding.EncodeToString([]byte("xx" + long)),
	} {
		if s.shown(text) == "" {
			t.Errorf("the secret is not found in %q", text)
		}
	}
	if how := s.shown("some other text"); how != "" {
		t.Errorf("the secret is found where it is not, as %s", how)
	}
}
