package admission

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// Bounds of the bodies that are being received. They are not verified yet, so the bounds apply to every sender.
const (
	// maxUnread bounds the bodies that are being received, and maxUnreadOfAddress those of one address. A body that has
	// been sent arrives within a round trip, so this is room for thousands of sites behind one address.
	maxUnread          = 512
	maxUnreadOfAddress = 64
	// maxUnreadBytes bounds the bytes of bodies in memory until their reports are stored or refused.
	maxUnreadBytes = 64 << 20
	// A body brings minBodyBytes, or its end, in each bodyTime: 137 bytes a second. A satellite link with 1 KB a second
	// has seven times that, so that it may be silent for 25 of the 30 seconds, as in rain.
	minBodyBytes = 4 << 10
	bodyTime     = 30 * time.Second
	// MaxAnswerTime bounds how long an answer may take.
	MaxAnswerTime = 2 * time.Minute
	// MaxDrainTime bounds the time for which a hub reads the rest of an unread body, so that the sender gets
	// the answer.
	MaxDrainTime = 5 * time.Second
)

// tooSlow is the answer to a body that did not arrive.
func tooSlow() error {
	return &hubapi.Error{
		Code:    hubapi.CodeTooSlow,
		Message: fmt.Sprintf("the body brought fewer than %d bytes in %s, or took longer than %s", minBodyBytes, bodyTime, hubapi.MaxBodyTime),
	}
}

// busy is the answer if there is no room. Each agent gets a different time to retry.
func busy() error {
	return &hubapi.Error{
		Code: hubapi.CodeBusy, Message: "too many reports are being taken at once; try again later",
		RetryAfter: minRetry + rand.N(maxRetry-minRetry),
	}
}

// TooLarge returns the error for a body of more than limit bytes.
func TooLarge(limit int64) error {
	return &hubapi.Error{Code: hubapi.CodeTooLarge, Message: fmt.Sprintf("the body exceeds %d bytes; send less at once", limit)}
}

// incoming is a body that is being received.
type incoming struct {
	control *http.ResponseController
	begun   time.Time

	mu             sync.Mutex
	yielded, ended bool
}

// wait has reads fail after bodyTime, and reports whether the body may go on.
func (b *incoming) wait() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.yielded {
		return false
	}
	until := time.Now().Add(bodyTime)
	if last := b.begun.Add(hubapi.MaxBodyTime); until.After(last) {
		until = last
	}
	_ = b.control.SetReadDeadline(until) // a test without a connection does not support it
	return true
}

// yield ends the body for another's sake.
func (b *incoming) yield() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.yielded = true
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
}

// end leaves the connection to whatever comes after the body.
func (b *incoming) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// failed returns the answer for an error of a read.
func (b *incoming) failed(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var tooLarge *http.MaxBytesError
	switch {
	case b.yielded:
		return busy()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return tooSlow()
	case errors.As(err, &tooLarge):
		return TooLarge(tooLarge.Limit)
	}
	return fmt.Errorf("%w: %s", store.ErrInvalid, store.Plain(store.Clip(fmt.Sprintf("body: %v", err))))
}

// ReadBody returns the whole body of a request, of at most limit bytes. They count as memory in use until the caller
// calls done. The error is a *hubapi.Error, or wraps store.ErrInvalid.
func (g *Gate) ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (all []byte, done func(), err error) {
	b := &incoming{control: http.NewResponseController(w), begun: time.Now()}
	place := g.bodies.Take(g.ClientOf(r), b.yield)
	defer func() {
		b.end()
		if err != nil {
			g.bodies.Leave(place)
			w.Header().Set("Connection", "close") // nothing more of the body is awaited
		}
	}()
	body := http.MaxBytesReader(w, r.Body, limit)
	for goal := 0; ; {
		if len(all) >= goal {
			if !b.wait() {
				return nil, nil, busy()
			}
			goal = len(all) + minBodyBytes
		}
		if size := cap(all); len(all) == size {
			more := min(max(size, minBodyBytes), int(limit)+1-size)
			if !g.bodies.Grow(place, more) {
				return nil, nil, busy()
			}
			all = append(make([]byte, 0, size+more), all...)
		}
		n, err := body.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, b.failed(err)
		}
	}
	if !g.bodies.Keep(place) {
		return nil, nil, busy()
	}
	// The connection is read on, to notice that the other side has gone, for as long as the answer takes.
	_ = b.control.SetReadDeadline(time.Time{})
	_ = b.control.SetWriteDeadline(time.Now().Add(MaxAnswerTime))
	return all, func() { g.bodies.Leave(place) }, nil
}
