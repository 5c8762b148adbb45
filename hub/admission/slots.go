package admission

import (
	"slices"
	"sync"
)

// slots bounds the resources that strangers may hold open at a hub: unfinished bodies, and connections without a request.
// One more always fits, so that idle holders lock no newcomer out: if there are too many, the oldest of the address that
// holds most is ended.
type slots struct {
	perAddress, total int
	bytes             int // bound of the bytes that the holders have in memory; zero if they have none

	mu   sync.Mutex
	held []*slot // oldest first
	used int
}

// slot is the place of one holder.
type slot struct {
	// address groups the holders; an empty one is on its own.
	address string
	end     func()
	size    int
}

// take returns a slot for one more holder. If the slot is needed for others later, end is called, once, and the slot holds
// nothing any more.
func (s *slots) take(address string, end func()) *slot {
	one := &slot{address: address, end: end}
	s.mu.Lock()
	s.held = append(s.held, one)
	var same []*slot
	for _, o := range s.held {
		if o.address == address {
			same = append(same, o)
		}
	}
	var out *slot
	switch {
	case address != "" && len(same) > s.perAddress:
		out = same[0]
	case len(s.held) > s.total:
		out = s.most(func(*slot) int { return 1 })
	}
	s.drop(out)
	s.mu.Unlock()
	if out != nil {
		out.end()
	}
	return one
}

// grow reports whether the holder may have n more bytes in memory. Others make room for them, as long as their slots
// are not kept.
func (s *slots) grow(one *slot, n int) bool {
	var ended []*slot
	defer func() {
		for _, o := range ended {
			o.end()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.Contains(s.held, one) {
		if s.used+n <= s.bytes {
			one.size += n
			s.used += n
			return true
		}
		out := s.most(func(o *slot) int { return o.size })
		if out == nil || out == one {
			return false
		}
		s.drop(out)
		ended = append(ended, out)
	}
	return false
}

// keep ends the holder's duty to make room for others, and reports whether it still held its slot. The bytes that it has in
// memory count until leave.
func (s *slots) keep(one *slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.held)
	s.held = slices.DeleteFunc(s.held, func(o *slot) bool { return o == one })
	return len(s.held) < n
}

// leave gives the slot up.
func (s *slots) leave(one *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(one)
}

func (s *slots) drop(one *slot) {
	if one == nil {
		return
	}
	s.held = slices.DeleteFunc(s.held, func(o *slot) bool { return o == one })
	s.used -= one.size
	one.size = 0
}

// most returns the oldest slot of the address whose slots weigh most together; nil if no slot weighs anything.
func (s *slots) most(weight func(*slot) int) *slot {
	sums := map[string]int{}
	for _, o := range s.held {
		if o.address != "" {
			sums[o.address] += weight(o)
		}
	}
	var out *slot
	heaviest := 0
	for _, o := range s.held {
		sum := weight(o)
		if o.address != "" && sum > 0 {
			sum = sums[o.address]
		}
		if sum > heaviest {
			out, heaviest = o, sum
		}
	}
	return out
}
