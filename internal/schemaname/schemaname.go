// Package schemaname puts the PostgreSQL schema of an installation into SQL
// that was written for the schema "onceq". The SQL names its tables in full
// (onceq.job), so no search_path is relied on, through a pooler or otherwise.
package schemaname

import (
	"fmt"
	"regexp"
	"strings"
)

// Default is the schema that all SQL of the product is written with.
const Default = "onceq"

var valid = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Check reports why name can't be the schema, or nil.
func Check(name string) error {
	if !valid.MatchString(name) {
		return fmt.Errorf("a schema name of %d bytes; allowed are 1 to 63 of a-z, 0-9 and _, with no digit first", len(name))
	}
	if strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("schema %q; PostgreSQL keeps names that begin with pg_ for itself", name)
	}
	return nil
}

// Rewrite returns sql with every table of the schema "onceq" named in schema
// instead. The name is quoted, so that a word of SQL such as order can be one.
func Rewrite(sql, schema string) string {
	if schema == Default {
		return sql
	}
	return strings.ReplaceAll(sql, Default+".", `"`+schema+`".`)
}
