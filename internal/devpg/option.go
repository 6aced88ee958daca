package devpg

import (
	"crypto/rand"
	"maps"
	"slices"
)

// Option changes how Start starts a server.
type Option func(*config)

type config struct {
	settings map[string]string
	private  bool
	durable  bool // keep the data on a disk
	password string
}

// Setting sets one of PostgreSQL's own settings, such as log_statement=all.
// A server given by URL is used as it is, so this option rules it out.
func Setting(name, value string) Option {
	return func(c *config) {
		c.settings[name] = value
		c.private = true
	}
}

// Durable keeps the data on a disk, and fsync and its companions on, for tests
// of crashes, for measurements that must pay for a real commit, and for more
// data than fit in memory. A server given by URL is taken to be durable.
func Durable() Option {
	return func(c *config) {
		c.durable = true
		c.settings["fsync"] = "on"
		c.settings["synchronous_commit"] = "on"
		c.settings["full_page_writes"] = "on"
	}
}

// Private rules out a server given by URL, which others may be using.
func Private() Option {
	return func(c *config) { c.private = true }
}

// Quiet is a private server that does nothing of its own accord: no
// autovacuum, no timed checkpoint, no background writing. What its WAL and
// its statistics show is then the work of the test alone.
func Quiet() Option {
	return func(c *config) {
		c.private = true
		c.settings["autovacuum"] = "off"
		c.settings["checkpoint_timeout"] = "1d"
		c.settings["max_wal_size"] = "10GB"
		c.settings["bgwriter_lru_maxpages"] = "0"
	}
}

func newConfig(opts []Option) *config {
	c := &config{
		settings: map[string]string{
			// Nobody needs these data after a crash, and commits are many.
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			// The data may lie in memory, where old WAL is a waste.
			"max_wal_size": "256MB",
			"min_wal_size": "32MB",
			// Many tests at once, each with a pool of its own.
			"max_connections": "300",
		},
		// Any user of the machine can reach a port on loopback, and a
		// superuser of PostgreSQL may run programs as its owner.
		password: rand.Text(),
	}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

// arguments are the settings as arguments of the program postgres, in a fixed
// order.
func (c *config) arguments() []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		args = append(args, "-c", name+"="+c.settings[name])
	}
	return args
}
