package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/cmd/onceq/internal/handover"
)

const enqueueLong = `enqueue reads JSON objects, one a line, and makes each a request: the whole
line is the payload, and the member that --key-field names is the key. The first
line with a key is accepted; a line that repeats it is replayed and makes no
second job; a line that has the key and is otherwise different is a conflict.
Member order and spacing make no difference.

The key is a string, or a number, true or false as it stands in the line. Of
members with one name the last one counts. A path such as data.object.id leads
into objects; \. is a dot in a name.

A line that is no JSON object, lacks the key or is longer than 16 MiB is
reported on stderr with its number, and so is a conflict; the others go on.
Blank lines are skipped. With --json the reports are objects on stdout, one a
line, and the summary is the last of them.

To run the same input again is always safe while the keys live (--ttl): what was
accepted is replayed. So after a lost connection or Ctrl-C, both of which say up
to which line everything is settled, run it again. A key that has expired is
accepted anew.

Lines are sent in batches, two at a time. Lines with one key are always decided
in the order of the input. Jobs of different keys may stand in the queue in
another order; with --workers 1, which is slower, they keep it.

With --debounce the latest line of a key wins: it replaces the job of the
earlier one, which keeps its id, until that job starts. A line that comes too
late is reported as non_replaceable and changes nothing; --follow-up makes a new
job of it. With --throttle equal lines of a key are coalesced into the first
one's job.

Exit codes: 0 each line is a job's, 1 failed, 2 wrong usage, 3 some conflicts or
non_replaceable lines, 4 some invalid lines. With both it is 4; the summary
counts each.`

func (a *app) enqueueCommand() *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use:   "enqueue",
		Short: "Hand over requests from a file or a pipe, one JSON object a line",
		Long:  enqueueLong,
		Example: `  onceq enqueue --type webhook --key-field id --file deliveries.ndjson
  onceq enqueue --type-field type --key-field data.object.id --scope payments < deliveries.ndjson
  onceq enqueue --type reindex --key-field document --debounce 5s --max-wait 1m --file changes.ndjson
  onceq enqueue --type alert --key-field host --throttle 10m < alerts.ndjson
  tail -f deliveries.ndjson | onceq enqueue --type webhook --key-field id --queue webhooks --json`,
		Args: cobra.NoArgs,
		RunE: a.command(func(cmd *cobra.Command) error { return a.enqueue(cmd, f) }),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.file, "file", "f", "", "read this `file` (default: stdin)")
	flags.StringVar(&f.keyField, "key-field", "", "`path` of the member that is the key")
	flags.StringVar(&f.jobType, "type", "", "`type` of every job")
	flags.StringVar(&f.typeField, "type-field", "", "`path` of the member that is the job's type")
	flags.StringVar(&f.queue, "queue", "", "`queue` of the jobs (default \"default\")")
	flags.StringVar(&f.scope, "scope", "", "`scope` of the keys (default \"default\")")
	flags.DurationVar(&f.ttl, "ttl", 24*time.Hour, "how long a key answers,\nsuch as 90s or 720h")
	flags.StringVar(&f.release, "release", "expiry", "`when` a key is free: expiry (after --ttl only),\nfinished (its job has ended) or dead (its job\ndied or was cancelled)")
	flags.DurationVar(&f.debounce, "debounce", 0, "the latest line of a key wins: its job runs this\nlong after it")
	flags.BoolVar(&f.hold, "hold", false, "with --debounce: later lines don't move the run time")
	flags.DurationVar(&f.maxWait, "max-wait", 0, "with --debounce: later lines move the run time at\nmost this far from the first")
	flags.BoolVar(&f.followUp, "follow-up", false, "with --debounce: a line whose job has started or\nended makes a new job")
	flags.DurationVar(&f.throttle, "throttle", 0, "the first line of a key wins: equal ones are\ndropped for this long")
	flags.IntVar(&f.priority, "priority", 0, "priority of the jobs, 0 to 100; higher runs first")
	flags.StringArrayVar(&f.tags, "tag", nil, "`tag` of the jobs; may be given again")
	flags.IntVar(&f.batch, "batch", 500, "lines sent at once, 1 to 1000")
	flags.IntVar(&f.workers, "workers", 2, "batches sent side by side, 1 to 16")
	cmd.MarkFlagsOneRequired("type", "type-field")
	cmd.MarkFlagsMutuallyExclusive("type", "type-field")
	// Three modes, of which a run has one.
	cmd.MarkFlagsMutuallyExclusive("debounce", "throttle", "ttl")
	cmd.MarkFlagsMutuallyExclusive("debounce", "throttle", "release")
	must(cmd.MarkFlagRequired("key-field"))
	must(cmd.MarkFlagFilename("file", "ndjson", "jsonl", "json"))
	must(cmd.RegisterFlagCompletionFunc("release", oneOf(releaseNames...)))
	a.completeQueues(cmd)
	return cmd
}

// must stops a program whose command line contradicts itself.
func must(err error) {
	if err != nil {
		panic("onceq: " + err.Error())
	}
}

func (a *app) enqueue(cmd *cobra.Command, f enqueueFlags) error {
	ctx := cmd.Context()
	t, err := f.template(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	in := a.stdin
	if f.file != "" {
		file, err := os.Open(f.file)
		if err != nil {
			return usageError{err}
		}
		defer file.Close()
		in = file
	}
	// One connection more than lanes, for the notifications of the client.
	db, err := a.open(ctx, f.workers+1)
	if err != nil {
		return err
	}
	defer db.pool.Close()
	client, err := a.client(db.pool)
	if err != nil {
		return err
	}

	a.relaxCollector()
	a.announce("enqueue the lines of "+f.source()+" into", db.place)
	r := a.newReport(db.place, inputSize(in))
	h := handover.Handover{Client: client, Template: t, Lanes: f.workers, Most: f.batch, Settled: r.stretch}
	err = h.Run(ctx, in)
	err = errors.Join(err, r.finish(err))
	switch {
	case err != nil:
		return fmt.Errorf("enqueue: %w", err)
	case r.total.Invalid > 0:
		return exitCode(exitInvalid)
	case r.total.Conflicts > 0 || r.total.NonReplaceable > 0:
		return exitCode(exitConflict)
	}
	return nil
}

// relaxCollector lets the heap grow to some times what is in use, which is
// little, before it is collected: a quarter less work for each line. The limit
// keeps that from mattering when lines are long. Go's own variables win.
func (a *app) relaxCollector() {
	if a.getenv("GOGC") == "" && a.getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(512 << 20)
	}
}

// inputSize is how many bytes are left to read, or 0 when that isn't known.
func inputSize(in io.Reader) int64 {
	file, ok := in.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return info.Size() - at
}
