// Package slots bounds the resources that strangers may hold open at a server: unfinished bodies, and connections without a
// request.
//
// One more always fits, so that idle holders lock no newcomer out: if there are too many, the oldest of the address that holds
// most is ended. Begin with [Slots.Take].
package slots

import (
	"slices"
	"sync"
)

// Slots are the places of holders. PerAddress and Total are required. It is safe for use by several goroutines.
type Slots struct {
	PerAddress, Total int
	// Bytes bounds the bytes that the holders have in memory; zero if they have none.
	Bytes int

	mu   sync.Mutex
	held []*Slot // oldest first
	used int
}

// Slot is the place of one holder.
type Slot struct {
	// address groups the holders; an empty one is on its own.
	address string
	end     func()
	size    int
}

// Take returns a slot for one more holder. If the slot is needed for others later, end is called, once, and the slot holds
// nothing any more.
func (s *Slots) Take(address string, end func()) *Slot {
	one := &Slot{address: address, end: end}
	s.mu.Lock()
	s.held = append(s.held, one)
	var same []*Slot
	for _, o := range s.held {
		if o.address == address {
			same = append(same, o)
		}
	}
	var out *Slot
	switch {
	case address != "" && len(same) > s.PerAddress:
		out = same[0]
	case len(s.held) > s.Total:
		out = s.most(func(*Slot) int { return 1 })
	}
	s.drop(out)
	s.mu.Unlock()
	if out != nil {
		out.end()
	}
	return one
}

// Grow reports whether the holder may have n more bytes in memory. Others make room for them, as long as their slots
// are not kept.
func (s *Slots) Grow(one *Slot, n int) bool {
	var ended []*Slot
	defer func() {
		for _, o := range ended {
			o.end()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.Contains(s.held, one) {
		if s.used+n <= s.Bytes {
			one.size += n
			s.used += n
			return true
		}
		out := s.most(func(o *Slot) int { return o.size })
		if out == nil || out == one {
			return false
		}
		s.drop(out)
		ended = append(ended, out)
	}
	return false
}

// Keep ends the holder's duty to make room for others, and reports whether it still held its slot. The bytes that it has in
// memory count until Leave.
func (s *Slots) Keep(one *Slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.held)
	s.held = slices.DeleteFunc(s.held, func(o *Slot) bool { return o == one })
	return len(s.held) < n
}

// Leave gives the slot up.
func (s *Slots) Leave(one *Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(one)
}

// Used returns how many slots are held and not kept, and the bytes that all holders have in memory.
func (s *Slots) Used() (held, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held), s.used
}

func (s *Slots) drop(one *Slot) {
	if one == nil {
		return
	}
	s.held = slices.DeleteFunc(s.held, func(o *Slot) bool { return o == one })
	s.used -= one.size
	one.size = 0
}

// most returns the oldest slot of the address whose slots weigh most together; nil if no slot weighs anything.
func (s *Slots) most(weight func(*Slot) int) *Slot {
	sums := map[string]int{}
	for _, o := range s.held {
		if o.address != "" {
			sums[o.address] += weight(o)
		}
	}
	var out *Slot
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
