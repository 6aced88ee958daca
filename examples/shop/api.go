package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/pkg/queue"
)

// Order is what a customer asks for, and the payload of its job.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"`
}

func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS shop_order (
			id        text   PRIMARY KEY,
			customer  text   NOT NULL,
			amount    bigint NOT NULL,
			confirmed timestamptz
		)`)
	return err
}

type api struct {
	pool   *pgxpool.Pool
	client *queue.Client
}

func newAPI(pool *pgxpool.Pool, client *queue.Client) http.Handler {
	a := &api{pool: pool, client: client}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", a.placeOrder)
	return mux
}

// placeOrder takes an order once for each Idempotency-Key.
func (a *api) placeOrder(w http.ResponseWriter, r *http.Request) {
	var order Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&order); err != nil {
		http.Error(w, "the body is not an order", http.StatusBadRequest)
		return
	}
	order.ID = r.Header.Get("Idempotency-Key")

	res, err := a.place(r.Context(), order)
	for tries := 0; errors.Is(err, queue.ErrRetryTransaction) && tries < 3; tries++ {
		res, err = a.place(r.Context(), order)
	}
	var conflict *queue.EnqueueIdempotencyConflictError
	switch {
	case errors.As(err, &conflict):
		answer(w, http.StatusConflict, map[string]any{"job": conflict.JobID, "differs_in": conflict.Fields})
	case errors.Is(err, queue.ErrInvalidRequest):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		// Nothing or all of it was committed. The customer may repeat the request.
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		answer(w, http.StatusAccepted, map[string]any{"job": res.JobID, "outcome": res.Outcome})
	}
}

// place stores the order and its job in one transaction: both or neither.
func (a *api) place(ctx context.Context, order Order) (res queue.Result, err error) {
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		res, err = a.client.EnqueueTx(ctx, tx, queue.Request{
			Type:      "order.confirm",
			Payload:   order,
			Admission: queue.Idempotency{Key: order.ID, Scope: "shop.orders"},
		})
		if err != nil || res.Outcome != queue.OutcomeAccepted {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO shop_order (id, customer, amount) VALUES ($1, $2, $3)", order.ID, order.Customer, order.Amount)
		return err
	})
	return res, err
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A customer who is gone will ask again with the same key.
	_ = json.NewEncoder(w).Encode(body)
}
