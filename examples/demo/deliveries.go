package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// counts is what the command says, and what the demo finds out for itself.
type counts struct {
	Lines, Accepted, Replayed, Conflicts, Invalid int
}

// feedDeliveries runs the file of deliveries through the command, twice.
func feedDeliveries(ctx context.Context, p *page, db *database, onceq *command) error {
	root, err := goTool(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "examples", "deliveries.ndjson")
	want, err := countDeliveries(file)
	if err != nil {
		return err
	}

	p.title("A file of deliveries, through the command")
	args := []string{"enqueue", "--type-field", "type", "--key-field", "id", "--scope", "webhooks", "--queue", "webhooks", "--file", file}
	shown := append([]string(nil), args...)
	shown[len(shown)-1] = "examples/deliveries.ndjson"
	p.say("$ onceq " + strings.Join(shown, " "))
	// 4: some lines are invalid.
	if err := onceq.start(ctx, p.out, p.out, 4, args); err != nil {
		return err
	}
	jobs, err := storedJobs(ctx, db, "webhooks")
	if err != nil {
		return err
	}
	if len(jobs) != want.Accepted {
		return fmt.Errorf("%d events in the file made %d jobs", want.Accepted, len(jobs))
	}

	p.say("")
	p.say("The same again, as after a crash:")
	p.say("")
	p.say("$ onceq " + strings.Join(append(shown, "--json | tail -n 1"), " "))
	out, err := onceq.output(ctx, 4, append(args, "--json")...)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	p.say(last)
	var again counts
	if err := json.Unmarshal([]byte(last), &again); err != nil {
		return fmt.Errorf("the command's summary: %w", err)
	}
	want.Replayed, want.Accepted = want.Accepted+want.Replayed, 0
	if again != want {
		return fmt.Errorf("the second run counted %+v, want %+v", again, want)
	}
	p.say("")
	p.say(fmt.Sprintf("Checked: %d lines with %d different events made %d jobs, and the second run none.", want.Lines, len(jobs), len(jobs)))
	return nil
}

// countDeliveries works out what must become of a file on an empty queue,
// without the code that the command uses.
func countDeliveries(file string) (counts, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return counts{}, err
	}
	var c counts
	first := map[string]string{}
	for line := range bytes.Lines(text) {
		c.Lines++
		var members map[string]any
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&members); err != nil {
			c.Invalid++
			continue
		}
		id, ok := members["id"].(string)
		if !ok {
			c.Invalid++
			continue
		}
		// Marshal sorts members, so equal objects get equal text.
		canonical, err := json.Marshal(members)
		if err != nil {
			return counts{}, err
		}
		switch owner, known := first[id]; {
		case !known:
			first[id] = string(canonical)
			c.Accepted++
		case owner == string(canonical):
			c.Replayed++
		default:
			c.Conflicts++
		}
	}
	return c, nil
}
