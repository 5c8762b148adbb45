package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/wherry-dev/wherry/bundle/show"
)

const (
	// progressEvery is the least time between two writes to the terminal.
	progressEvery = 250 * time.Millisecond
	// rateSpan is the time over which the rate is measured, so that a slow medium shows soon.
	rateSpan = 10 * time.Second
)

// Progress shows how far a long copy is: one line on a terminal, which is written again and again, with bytes, rate and
// the time left. It may be used by several goroutines. A nil Progress shows nothing.
type Progress struct {
	to   io.Writer
	what string
	now  func() time.Time

	mu      sync.Mutex
	written time.Time // when the line was written last; zero while there is none
	samples []sample  // of the last rateSpan, oldest first
}

type sample struct {
	at   time.Time
	done int64
}

// NewProgress returns a Progress whose line begins with what, such as "copying to site.tar". It is nil if stderr is not a
// terminal. The caller calls End before anything else is printed.
func NewProgress(what string) *Progress {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return newProgress(os.Stderr, what, time.Now)
}

func newProgress(to io.Writer, what string, now func() time.Time) *Progress {
	return &Progress{to: to, what: what, now: now}
}

// Update says how many bytes are done, of how many; a total of zero is not known. The rate is that of the bytes after
// those of the first call, so that what an earlier run has done does not count.
func (p *Progress) Update(done, total int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.written.IsZero() && now.Sub(p.written) < progressEvery {
		return
	}
	p.written = now
	p.samples = append(p.samples, sample{now, done})
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) >= rateSpan {
		p.samples = p.samples[1:]
	}
	fmt.Fprintf(p.to, "\r%s: %s\x1b[K", p.what, progressLine(done, total, p.rate()))
}

// Show shows a text in place of bytes.
func (p *Progress) Show(text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.written.IsZero() && now.Sub(p.written) < progressEvery {
		return
	}
	p.written = now
	fmt.Fprintf(p.to, "\r%s: %s\x1b[K", p.what, text)
}

// End takes the line away.
func (p *Progress) End() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.written.IsZero() {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
	p.written, p.samples = time.Time{}, nil
}

// rate returns bytes per second, and zero while it is not known.
func (p *Progress) rate() float64 {
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	if d := last.at.Sub(first.at).Seconds(); d > 0 {
		return float64(last.done-first.done) / d
	}
	return 0
}

func progressLine(done, total int64, rate float64) string {
	line := show.Size(done)
	if total > 0 {
		line += fmt.Sprintf(" of %s (%d %%)", show.Size(total), percent(done, total))
	}
	if rate <= 0 {
		return line
	}
	line += ", " + show.Size(int64(rate)) + "/s"
	if left := total - done; total > 0 && left > 0 {
		line += ", " + timeLeft(float64(left)/rate) + " left"
	}
	return line
}

func percent(done, total int64) int64 { return int64(100 * min(1, float64(done)/float64(total))) }

// timeLeft writes a time in the unit that people count it in.
func timeLeft(seconds float64) string {
	switch {
	case seconds > 48*3600:
		return "days"
	case seconds >= 2*3600:
		return show.Count(int(seconds/3600), "hour")
	case seconds >= 120:
		return show.Count(int(seconds/60), "minute")
	}
	return show.Count(int(seconds)+1, "second")
}
