package arch

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is where a file surely holds more than one noun.
const maxLines = 400

func TestFilesStaySmall(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "*.go") {
		if n := strings.Count(read(t, file), "\n"); n > maxLines {
			t.Errorf("%s has %d lines, at most %d: split it by noun", file, n, maxLines)
		}
	}
}

var statement = regexp.MustCompile("[\"`](SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|TRUNCATE) ")

// SQL is in queries/, where it can be read, checked and planned. schema/ looks
// its own version table up before there is anything else, and development code
// makes databases; the benchmark has floors and peers of its own.
func TestSQLIsInQueries(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "*.go") {
		rel, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if strings.HasSuffix(file, "_test.go") || dir == "schema" || isDevelopment(dir) || strings.HasPrefix(dir, "examples/") || dir == "bench" {
			continue
		}
		if m := statement.FindString(read(t, file)); m != "" {
			t.Errorf("%s holds a statement (%s...): it belongs into queries/", rel, strings.Trim(m, "\"`"))
		}
	}
}

// sqlc's lexer takes =@ for an operator and loses the parameter without a word.
func TestParametersAreSeen(t *testing.T) {
	t.Parallel()
	lost := regexp.MustCompile(`[=<>]@[a-z]`)
	for _, file := range files(t, "queries/*.sql") {
		if m := lost.FindString(read(t, file)); m != "" {
			t.Errorf("%s has %s: put a space before @", file, m)
		}
	}
}
