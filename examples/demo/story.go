package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/onceq/onceq/pkg/queue"
)

// request is a request of the story and what became of it.
type request struct {
	what string // for people
	path string
	key  string // for the Idempotency-Key header, or ""
	body string

	status int // 0 when no answer came
	answer answer
}

// expected is what a request must have got.
type expected struct {
	status  int
	outcome string
}

// tellStory replays the four accidents over HTTP and checks each answer and
// each row.
func tellStory(ctx context.Context, p *page, db *database) error {
	p.title("Four accidents, over HTTP on loopback")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newShop(db.client), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	story, err := newCaller(listener.Addr()).play(ctx)
	err = errors.Join(err, server.Close())
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	if err != nil {
		return err
	}
	p.say("What was decided:")
	p.say("")
	var rows []table.Row
	for _, r := range story {
		rows = append(rows, table.Row{r.what, "POST " + r.path, r.statusText(), p.outcome(r.outcome()), short(r.answer.Job)})
	}
	p.table(table.Row{"what happened", "request", "HTTP", "decided", "job"}, rows)
	return proveStory(ctx, p, db, story)
}

// caller is the shop's customers, partners and clients.
type caller struct {
	base string
	http *http.Client
}

// newCaller returns one that opens a connection for each request and sends
// none again by itself: who retries is part of the story.
func newCaller(shop net.Addr) caller {
	return caller{base: "http://" + shop.String(), http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second,
	}}
}

const (
	order   = `{"order":"ord_7Q2M","customer":"cus_31","amount":4200,"currency":"EUR"}`
	event   = `{"id":"evt_5fK9wX2bT7","type":"invoice.paid","data":{"object":{"id":"inv_88","total":12900}}}`
	payment = `{"payment":"pay_Zk41","amount":4200,"currency":"EUR"}`

	orderKey   = "checkout-ord_7Q2M-attempt-1"
	paymentKey = "capture-pay_Zk41-client-3f"
	eventKey   = "evt_5fK9wX2bT7"
)

func (c caller) play(ctx context.Context) ([]*request, error) {
	click := func(which string) *request {
		return &request{what: `"Place order", ` + which + " click of a double click", path: "/orders", key: orderKey, body: order}
	}
	first, second := click("one"), click("other")
	if err := c.atOnce(ctx, first, second); err != nil {
		return nil, err
	}

	delivered := func(what, body string) *request { return &request{what: what, path: "/webhooks", body: body} }
	pay := func(what string) *request {
		return &request{what: what, path: "/payments", key: paymentKey, body: payment}
	}
	story := []*request{first, second,
		delivered("a webhook is delivered", event),
		delivered("it is delivered again", event),
		delivered("and again, by another server of the sender", `{"data": {"object": {"total": 12900, "id": "inv_88"}}, "type": "invoice.paid", "id": "evt_5fK9wX2bT7"}`),
		pay("a payment, and its answer is lost"),
		pay("the client tries again"),
		{what: "a bug: the order's key for another amount", path: "/orders", key: orderKey, body: strings.Replace(order, "4200", "9900", 1)},
	}
	for _, r := range story[2:] {
		if err := c.send(ctx, r); err != nil {
			return nil, err
		}
	}
	return story, nil
}

// atOnce sends requests at the same moment.
func (c caller) atOnce(ctx context.Context, requests ...*request) error {
	start := make(chan struct{})
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() {
			<-start
			errs[i] = c.send(ctx, r)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}

// send makes the request. That no answer comes is no error here.
func (c caller) send(ctx context.Context, r *request) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+r.path, strings.NewReader(r.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	defer resp.Body.Close()
	r.status = resp.StatusCode
	if err := json.NewDecoder(resp.Body).Decode(&r.answer); err != nil {
		return fmt.Errorf("POST %s was answered with %s and no JSON: %w", r.path, resp.Status, err)
	}
	return nil
}

func (r *request) statusText() string {
	if r.status == 0 {
		return "no answer"
	}
	return fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
}

func (r *request) outcome() string {
	switch {
	case r.status == 0:
		return "?"
	case len(r.answer.Fields) > 0:
		fields := make([]string, len(r.answer.Fields))
		for i, f := range r.answer.Fields {
			fields[i] = string(f)
		}
		return r.answer.Outcome + " in " + strings.Join(fields, ", ")
	}
	return r.answer.Outcome
}

// short is the end of a job's id, where ids of one moment differ.
func short(id queue.JobID) string {
	if len(id) < 12 {
		return ""
	}
	return "…" + string(id[len(id)-12:])
}
