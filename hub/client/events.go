package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

const (
	// maxEventBytes bounds one line of a stream.
	maxEventBytes = 1 << 20
	// maxSilence is the time without a byte after which a stream is taken for broken; a hub sends a comment every
	// fleet.Heartbeat.
	maxSilence = 4 * fleet.Heartbeat
	// firstPause and lastPause are the waits before a stream is asked for again, which double.
	firstPause = time.Second
	lastPause  = time.Minute
)

// Events implements fleet.Answers. It connects again after an interruption, and goes on where it was; a hub that could
// never be reached, and a refusal that waiting does not mend, are errors.
func (c Client) Events(ctx context.Context, after store.Position, q fleet.Query, each func(fleet.Event) error) error {
	f := follower{client: c, at: after, query: q, each: each}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		before := f.lines
		err := f.stream(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.ended != nil {
			return f.ended
		}
		if !q.AsOf.IsZero() && errors.Is(err, errEnd) {
			return nil
		}
		if f.lines == 0 || !passing(err) {
			return err
		}
		if f.lines > before {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// errEnd means that the hub has ended a stream.
var errEnd = fmt.Errorf("the stream of events has ended: %w", io.ErrUnexpectedEOF)

// passing reports whether asking again may help.
func passing(err error) bool {
	var e *hubapi.Error
	if !errors.As(err, &e) {
		return !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrForgotten)
	}
	return e.Code == hubapi.CodeBusy || e.Code == hubapi.CodeUnavailable
}

// follower follows the events of a hub through several connections.
type follower struct {
	client Client
	query  fleet.Query
	each   func(fleet.Event) error
	// at is where to begin: the last position of which all events have come, or -1.
	at store.Position
	// partly is the position of which the first seen events have come, and some are still to come.
	partly store.Position
	seen   int
	// lines counts what has come through all connections; ended is an error of each.
	lines int
	ended error
}

// stream reads one connection to its end.
func (f *follower) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(maxSilence, cancel)
	defer quiet.Stop()
	client := f.client.client()
	client.Timeout = 0
	values := f.query.Values()
	values.Del("limit")
	if !f.query.AsOf.IsZero() {
		values.Del("asOf")
		values.Set("follow", "false")
	}
	if f.at >= 0 {
		values.Set("after", strconv.FormatInt(int64(f.at), 10))
	} else {
		values.Del("after")
	}
	answer, err := f.client.do(ctx, client, "v1/events", values, fleet.EventStream)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != fleet.EventStream {
		return f.client.wrap(fmt.Errorf("the answer is not a hub's: %q", store.Plain(store.Clip(kind))))
	}
	replayed := 0
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEventBytes)
	var kind string
	var data []byte
	id := int64(-1)
	for lines.Scan() {
		f.lines++
		quiet.Reset(maxSilence)
		line := lines.Bytes()
		if len(line) > 0 {
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "event":
				kind = string(value)
			case "data":
				data = append(data[:0], value...) // a hub sends one line
			case "id":
				if at, err := strconv.ParseInt(string(value), 10, 64); err == nil {
					id = at
				}
			}
			continue
		}
		if len(data) == 0 && id >= 0 {
			f.at, f.partly, f.seen = store.Position(id), 0, 0 // how far the stream is
		} else if err := f.take(kind, data, &replayed); err != nil {
			return err
		}
		kind, data, id = "", data[:0], -1
	}
	err = lines.Err()
	if err == nil {
		err = errEnd
	}
	return f.client.wrap(reasonOf(err))
}

// take passes on an event, unless a former connection has brought it. Replayed counts the events of the position that is
// partly known.
func (f *follower) take(kind string, data []byte, replayed *int) error {
	switch {
	case len(data) == 0:
		return nil
	case kind == fleet.ErrorEvent:
		var e hubapi.Error
		if err := json.Unmarshal(data, &e); err != nil {
			return f.client.wrap(err)
		}
		return f.client.wrap(refusal(&e))
	}
	var event fleet.Event
	if err := json.Unmarshal(data, &event); err != nil {
		return f.client.wrap(errors.New(store.Plain("the answer is not a hub's: " + err.Error())))
	}
	fleet.Plain(&event)
	if event.ID == f.partly && f.seen > 0 {
		if *replayed++; *replayed <= f.seen {
			return nil
		}
	}
	if f.ended = f.each(event); f.ended != nil {
		return f.ended
	}
	if event.More {
		if f.partly != event.ID {
			f.partly, f.seen = event.ID, 0
			*replayed = 0
		}
		f.seen++
		*replayed = f.seen
		return nil
	}
	f.at, f.partly, f.seen = event.ID, 0, 0
	return nil
}
