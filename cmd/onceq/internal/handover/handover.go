// Package handover streams newline-delimited JSON into a queue, in batches, and
// tells what became of each line.
package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// grace is how long the batches under way may take once the user has asked for
// an end.
const grace = 5 * time.Second

// Handover streams an input into the queue. At any time a few chunks are in
// memory: one that is being filled, and those that the lanes work on.
type Handover struct {
	Client   Enqueuer
	Template Template
	Lanes    int
	Most     int // lines of a batch
	// Settled is called for each stretch of the input, in its order.
	Settled func(Settled)
}

// stopped tells that a handover ended early.
type stopped struct {
	line int // every line up to this one is settled
	err  error
}

func (e *stopped) Error() string {
	upTo := "no line is known to be settled"
	if e.line > 0 {
		upTo = fmt.Sprintf("all lines up to line %d are settled", e.line)
	}
	return fmt.Sprintf("%v; %s, and to run the same input again is safe, since each line has a key", e.err, upTo)
}

func (e *stopped) Unwrap() error { return e.err }

// ErrInterrupted tells that the user has asked for the end.
var ErrInterrupted = errors.New("interrupted")

// Run hands over every line of in. When ctx is done no further line is begun, and
// what is under way is waited for. The error tells up to which line everything
// is settled.
//
// A reader that hangs in a read of in, such as one of a pipe, is left behind.
func (h *Handover) Run(ctx context.Context, in io.Reader) error {
	return h.run(ctx, newLineReader(in, MaxLineBytes))
}

// run hands over every line of in. An error is a *stopped.
func (h *Handover) run(ctx context.Context, in *lineReader) error {
	intake, stopIntake := context.WithCancel(ctx)
	defer stopIntake()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, stopWork) })()

	lines := make(chan line)
	readErr := make(chan error, 1)
	go func() { readErr <- h.read(intake, in, lines) }()

	var wg sync.WaitGroup
	chunks, flight := make(chan *chunk), make(chan *chunk, 1)
	var whole bool
	wg.Go(func() { whole = collect(intake, lines, chunks, h.Lanes, h.Most) })
	wg.Go(func() { h.deal(work, chunks, flight) })

	last := 0
	var failed error
	for c := range flight {
		s, err := c.wait()
		if failed == nil {
			h.Settled(s)
			if failed = err; err != nil {
				stopIntake()
				stopWork()
				continue
			}
			last = c.last
		}
	}
	wg.Wait()
	if failed == nil && whole {
		failed = <-readErr
	}
	if !whole && failed == nil || ctx.Err() != nil && errors.Is(failed, context.Canceled) {
		failed = ErrInterrupted
	}
	if failed != nil {
		return &stopped{last, failed}
	}
	return nil
}

// read sends the lines of in, without the blank ones, and closes lines at the
// end of the input.
func (h *Handover) read(ctx context.Context, in *lineReader, lines chan<- line) error {
	defer close(lines)
	for {
		text, err := in.next()
		var l line
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLineTooLong):
			l = line{wrong: tooLong(in.length, in.most)}
		case err != nil:
			return fmt.Errorf("read the input: %w", err)
		case len(bytes.Trim(text, " \t\r")) == 0:
			continue
		default:
			l = h.Template.line(text)
		}
		l.number, l.read = in.number, in.read
		select {
		case lines <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deal gives each lane its batch of every chunk, and passes the chunks on in
// their order.
func (h *Handover) deal(ctx context.Context, chunks <-chan *chunk, flight chan<- *chunk) {
	defer close(flight)
	type task struct {
		c *chunk
		b *batch
	}
	lanes := make([]chan task, h.Lanes)
	var wg sync.WaitGroup
	for i := range lanes {
		lanes[i] = make(chan task)
		wg.Go(func() {
			for t := range lanes[i] {
				t.b.settled, t.b.err = settle(ctx, h.Client, t.b.lines)
				t.c.done.Done()
			}
		})
	}
	for c := range chunks {
		c.done.Add(h.Lanes)
		for i := range lanes {
			lanes[i] <- task{c, &c.batches[i]}
		}
		flight <- c
	}
	for _, lane := range lanes {
		close(lane)
	}
	wg.Wait()
}
