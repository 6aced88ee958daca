package handover

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

const (
	// maxChunkBytes closes a chunk early, so that long lines don't fill the
	// memory. A chunk can be larger by one line.
	maxChunkBytes = 16 << 20
	// linger is how long a chunk that isn't full waits for further lines, for the
	// sake of pipes in which lines arrive now and then.
	linger = 50 * time.Millisecond
)

// chunk is a stretch of the input. It is dealt out to lanes by key: equal keys
// go to the same lane, which works in order, so lines with one key are decided
// in the order of the input however many lanes there are.
type chunk struct {
	batches []batch // by lane
	wrong   Settled // the lines that are no requests
	last    int     // the number of the last line
	read    int64   // bytes of the input up to and with it
	size    int
	most    int // lines of a batch
	full    bool
	done    sync.WaitGroup
}

// batch is what one lane does for a chunk.
type batch struct {
	lines   []line
	settled Settled
	err     error
}

var laneSeed = maphash.MakeSeed()

func newChunk(lanes, most int) *chunk {
	return &chunk{batches: make([]batch, lanes), most: most}
}

func (c *chunk) empty() bool { return c.last == 0 }

func (c *chunk) add(l line) {
	c.last, c.read = l.number, l.read
	c.size += l.size
	if l.wrong != nil {
		c.wrong.refuse(l, l.wrong)
		c.full = c.full || len(c.wrong.Refusals) >= c.most
		return
	}
	b := &c.batches[maphash.String(laneSeed, l.key)%uint64(len(c.batches))]
	b.lines = append(b.lines, l)
	c.full = c.full || len(b.lines) >= c.most || c.size >= maxChunkBytes
}

// wait waits until every lane has done its part. The error is the first one.
func (c *chunk) wait() (Settled, error) {
	c.done.Wait()
	all := c.wrong
	all.Last, all.Read = c.last, c.read
	var err error
	for i := range c.batches {
		b := &c.batches[i]
		all.Add(b.settled.Tally)
		all.Refusals = append(all.Refusals, b.settled.Refusals...)
		if err == nil {
			err = b.err
		}
	}
	return all, err
}

// collect gathers lines into chunks until lines is closed or ctx is done. Then
// it closes chunks. It tells whether it passed on every line.
func collect(ctx context.Context, lines <-chan line, chunks chan<- *chunk, lanes, most int) bool {
	defer close(chunks)
	c, ended := newChunk(lanes, most), false
	var due <-chan time.Time
	for {
		in, out := lines, chan<- *chunk(nil)
		if c.full {
			in, out = nil, chunks
		}
		select {
		case l, ok := <-in:
			switch {
			case !ok && c.empty():
				return true
			case !ok:
				ended, c.full = true, true
				continue
			case c.empty():
				due = time.After(linger)
			}
			c.add(l)
		case out <- c:
			if ended {
				return true
			}
			c, due = newChunk(lanes, most), nil
		case <-due:
			c.full = true
		case <-ctx.Done():
			return false
		}
	}
}
