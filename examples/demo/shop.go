package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/onceq/onceq/pkg/queue"
)

// The scopes of the story's keys.
const (
	scopeOrders   = "shop.orders"
	scopeWebhooks = "shop.webhooks"
	scopePayments = "shop.payments"
)

// answer is what the shop tells a caller.
type answer struct {
	Outcome string        `json:"outcome"`
	Job     queue.JobID   `json:"job"`
	Fields  []queue.Field `json:"differs_in,omitempty"`
}

// shop is the service of the story.
type shop struct{ client *queue.Client }

func newShop(client *queue.Client) http.Handler {
	s := shop{client}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.keyedByHeader("order.place", scopeOrders))
	mux.Handle("POST /payments", loseFirstAnswer(s.keyedByHeader("payment.capture", scopePayments)))
	mux.HandleFunc("POST /webhooks", s.webhook)
	return mux
}

// keyedByHeader makes one job for one Idempotency-Key.
func (s shop) keyedByHeader(jobType, scope string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if body, ok := readBody(w, r); ok {
			s.enqueue(w, r, jobType, scope, r.Header.Get("Idempotency-Key"), body)
		}
	}
}

// webhook makes one job for one event, however often it is delivered.
func (s shop) webhook(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	var event struct{ ID, Type string }
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "the body is no event", http.StatusBadRequest)
		return
	}
	s.enqueue(w, r, event.Type, scopeWebhooks, event.ID, body)
}

func readBody(w http.ResponseWriter, r *http.Request) (json.RawMessage, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		http.Error(w, "the body can't be read", http.StatusBadRequest)
	}
	return body, err == nil
}

func (s shop) enqueue(w http.ResponseWriter, r *http.Request, jobType, scope, key string, payload json.RawMessage) {
	res, err := s.client.EnqueueWithResult(r.Context(), queue.Request{
		Type:      jobType,
		Queue:     "shop",
		Payload:   payload,
		Admission: queue.Idempotency{Key: key, Scope: scope},
	})
	var conflict *queue.EnqueueIdempotencyConflictError
	switch {
	case errors.As(err, &conflict):
		write(w, http.StatusConflict, answer{Outcome: "conflict", Job: conflict.JobID, Fields: conflict.Fields})
	case errors.Is(err, queue.ErrInvalidRequest):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case res.Outcome == queue.OutcomeAccepted:
		write(w, http.StatusAccepted, answer{Outcome: string(res.Outcome), Job: res.JobID})
	default:
		write(w, http.StatusOK, answer{Outcome: string(res.Outcome), Job: res.JobID})
	}
}

func write(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller who is gone will ask again with the same key.
	_ = json.NewEncoder(w).Encode(a)
}

// loseFirstAnswer is a network that fails at the worst moment: the first
// request is handled and committed, and then the connection breaks.
func loseFirstAnswer(next http.Handler) http.Handler {
	var lost atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lost.CompareAndSwap(false, true) {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(nowhere{http.Header{}}, r)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close() // nobody is there to be told
		}
	})
}

// nowhere is where an answer goes that nobody gets.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}
