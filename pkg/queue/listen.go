package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// listen turns notifications into nudges until ctx ends. They are hints: after
// a lost connection it comes back with growing pauses, and each time it does,
// every queue looks at its tables at once.
func (w *Worker) listen(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		began := time.Now()
		err := w.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			try = 0
		}
		w.log.Warn("listening ended", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(min(10*time.Second, 100*time.Millisecond<<min(try, 7))):
		}
	}
}

func (w *Worker) listenOnce(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	pooled, err := w.control.Acquire(asking)
	if err != nil {
		return err
	}
	// Out of the pool for good: a connection that listens must not serve others.
	conn := pooled.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(asking, "LISTEN "+pgx.Identifier{w.c.schema}.Sanitize()); err != nil {
		return err
	}
	for _, s := range w.queues {
		s.nudge()
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if s, ok := w.queues[n.Payload]; ok {
			s.nudge()
		}
	}
}
