package scheduler

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// The functions of this file encode assignments, whatever their fields, and decode them. Most texts
// occur many times, so each is written once, and read as a part of one string. Byte slices, which
// are the contents of files, are left out: they go to packs.

// index is the cache's record of one cluster type.
type index struct {
	packs  []string
	kept   []*keptAssignment
	inline []byte // files that are in no pack
	// texts is the table that the kept assignments were read with. fresh was its length when all of its texts were
	// last in use.
	texts []string
	fresh int
}

// encode writes the index. Assignments that were read are written as they were, with their table, unless too much of the
// table is no longer used.
func (ix *index) encode() []byte {
	w := &encoder{known: map[string]int{}, texts: slices.Clip(ix.texts)}
	renew := len(ix.texts) > 2*ix.fresh
	if renew {
		w.texts = nil
	}
	w.body = make([]byte, 0, 128*len(ix.kept))
	w.number(len(ix.packs))
	for _, key := range ix.packs {
		w.text(key)
	}
	w.number(len(ix.kept))
	for _, k := range ix.kept {
		w.body = append(w.body, k.id[:]...)
		w.number(k.pack)
		w.number(k.offset)
		w.number(len(k.files))
		for _, size := range k.files {
			w.number(size)
		}
		if k.written != nil && !renew {
			w.body = append(w.body, k.written...)
			continue
		}
		a := k.assignment
		a.Config, a.Policies, a.Manifests = nil, nil, nil // set again when the assignment is found
		w.value(reflect.ValueOf(a))
	}
	if ix.fresh == 0 || renew {
		ix.fresh = len(w.texts)
	}
	data := binary.AppendUvarint(nil, uint64(ix.fresh))
	data = binary.AppendUvarint(data, uint64(len(w.texts)))
	for _, s := range w.texts {
		data = binary.AppendUvarint(data, uint64(len(s)))
	}
	for _, s := range w.texts {
		data = append(data, s...)
	}
	data = binary.AppendUvarint(data, uint64(len(ix.inline)))
	return slices.Concat(data, ix.inline, w.body)
}

// decodeIndex reads what encode wrote. ok is false for anything else.
func decodeIndex(data []byte) (ix *index, ok bool) {
	r := &decodeReader{rest: data}
	ix = &index{fresh: r.count()}
	r.readTexts()
	ix.texts, ix.inline = r.texts, r.bytes(r.count())
	for range r.length() {
		ix.packs = append(ix.packs, r.text())
	}
	all := make([]keptAssignment, r.length())
	for i := range all {
		k := &all[i]
		copy(k.id[:], r.bytes(len(k.id)))
		k.pack, k.offset = r.number(), r.number()
		if n := r.length(); n > 0 {
			k.files = make([]int, n)
		}
		for i := range k.files {
			k.files[i] = r.number()
		}
		before := r.rest
		r.value(reflect.ValueOf(&k.assignment).Elem())
		k.written = before[:len(before)-len(r.rest)]
		ix.kept = append(ix.kept, k)
	}
	return ix, !r.broken && len(r.rest) == 0 && len(data) > 0
}

type encoder struct {
	body  []byte
	texts []string
	known map[string]int
}

func (w *encoder) number(n int) { w.body = binary.AppendVarint(w.body, int64(n)) }

func (w *encoder) text(s string) {
	i, ok := w.known[s]
	if !ok {
		i = len(w.texts)
		w.known[s], w.texts = i, append(w.texts, s)
	}
	w.number(i)
}

func (w *encoder) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		w.text(v.String())
	case reflect.Bool:
		w.number(map[bool]int{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.body = binary.AppendVarint(w.body, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.body = binary.AppendVarint(w.body, int64(v.Uint()))
	case reflect.Pointer:
		if w.present(v); !v.IsNil() {
			w.value(v.Elem())
		}
	case reflect.Slice:
		if w.present(v); v.IsNil() || isBytes(v.Type()) {
			return
		}
		w.number(v.Len())
		for i := range v.Len() {
			w.value(v.Index(i))
		}
	case reflect.Map:
		if w.present(v); v.IsNil() {
			return
		}
		w.number(v.Len())
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			w.value(key)
			w.value(v.MapIndex(key))
		}
	case reflect.Struct:
		var filled uint64 // most fields of most assignments are empty
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				filled |= 1 << i
			}
		}
		w.body = binary.AppendUvarint(w.body, filled)
		for ; filled != 0; filled &= filled - 1 {
			w.value(v.Field(bits.TrailingZeros64(filled)))
		}
	default:
		panic("an Assignment cannot hold a " + v.Type().String())
	}
}

func (w *encoder) present(v reflect.Value) {
	w.number(map[bool]int{false: 1}[v.IsNil()])
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// decodeReader reads what an encoder wrote. Once broken it yields zero values.
type decodeReader struct {
	rest   []byte
	texts  []string
	broken bool
}

func (r *decodeReader) varint() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.broken, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *decodeReader) number() int { return int(r.varint()) }

// length is a number of things that take a byte each, at least.
func (r *decodeReader) length() int {
	n := r.number()
	if n < 0 || n > len(r.rest) {
		r.broken, r.rest = true, nil
		return 0
	}
	return n
}

func (r *decodeReader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.broken, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// count is a number of things of a byte each, at least, that is not written with a sign.
func (r *decodeReader) count() int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)) {
		r.broken, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

func (r *decodeReader) readTexts() {
	ends, end := make([]int, r.count()), 0
	for i := range ends {
		end += r.count()
		ends[i] = end
	}
	all, start := string(r.bytes(end)), 0
	if r.broken {
		return
	}
	r.texts = make([]string, len(ends))
	for i, end := range ends {
		r.texts[i], start = all[start:end], end
	}
}

func (r *decodeReader) text() string {
	i := r.number()
	if i < 0 || i >= len(r.texts) {
		r.broken = true
		return ""
	}
	return r.texts[i]
}

func (r *decodeReader) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(r.text())
	case reflect.Bool:
		v.SetBool(r.number() == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(r.varint())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(r.varint()))
	case reflect.Pointer:
		if r.number() == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			r.value(v.Elem())
		}
	case reflect.Slice:
		if r.number() != 1 {
			return
		}
		if isBytes(v.Type()) {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // see fillBytes
			return
		}
		n := r.length()
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			r.value(v.Index(i))
		}
	case reflect.Map:
		if r.number() != 1 {
			return
		}
		n := r.length()
		v.Set(reflect.MakeMapWithSize(v.Type(), n))
		for range n {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			r.value(key)
			r.value(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		filled, size := binary.Uvarint(r.rest)
		if size <= 0 || filled>>v.NumField() != 0 {
			r.broken, r.rest = true, nil
			return
		}
		for r.rest = r.rest[size:]; filled != 0; filled &= filled - 1 {
			r.value(v.Field(bits.TrailingZeros64(filled)))
		}
	}
}

// assignmentShape describes the type Assignment, so that an index of another shape is not read.
var assignmentShape = sync.OnceValue(func() string { return shapeOf(reflect.TypeFor[Assignment]()) })

func shapeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		var b strings.Builder
		for f := range t.Fields() {
			fmt.Fprintf(&b, "%s %s;", f.Name, shapeOf(f.Type))
		}
		return "{" + b.String() + "}"
	case reflect.Pointer, reflect.Slice:
		return t.Kind().String() + " " + shapeOf(t.Elem())
	case reflect.Map:
		return "map " + shapeOf(t.Key()) + " " + shapeOf(t.Elem())
	default:
		return t.Kind().String()
	}
}

// eachBytes visits the byte slices in v that are there, always in the same order.
func eachBytes(v reflect.Value, visit func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachBytes(v.Elem(), visit)
		}
	case reflect.Slice:
		if isBytes(v.Type()) {
			if !v.IsNil() {
				visit(v)
			}
			return
		}
		for i := range v.Len() {
			eachBytes(v.Index(i), visit)
		}
	case reflect.Struct:
		for _, i := range fieldsWithBytes()[v.Type()] {
			eachBytes(v.Field(i), visit)
		}
	}
}

// fieldsWithBytes lists, for the structs of an assignment, the fields in which there can be byte slices:
// few of many.
var fieldsWithBytes = sync.OnceValue(func() map[reflect.Type][]int {
	fields := map[reflect.Type][]int{}
	var holds func(reflect.Type) bool
	holds = func(t reflect.Type) bool {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			return isBytes(t) || holds(t.Elem())
		case reflect.Struct:
			fields[t] = nil
			for i := range t.NumField() {
				if holds(t.Field(i).Type) {
					fields[t] = append(fields[t], i)
				}
			}
		}
		return len(fields[t]) > 0
	}
	holds(reflect.TypeFor[Assignment]())
	return fields
})

// appendBytes appends the contents of a's byte slices to data and returns how long they are.
func appendBytes(data []byte, a Assignment) (_ []byte, sizes []int) {
	eachBytes(reflect.ValueOf(a), func(v reflect.Value) {
		data, sizes = append(data, v.Bytes()...), append(sizes, v.Len())
	})
	return data, sizes
}

// fillBytes sets a's byte slices from the beginning of data. It returns false if the sizes do not fit.
func fillBytes(a *Assignment, sizes []int, data []byte) bool {
	ok := true
	eachBytes(reflect.ValueOf(a).Elem(), func(v reflect.Value) {
		if len(sizes) == 0 || sizes[0] < 0 || sizes[0] > len(data) {
			ok = false
			return
		}
		n := sizes[0]
		v.SetBytes(data[:n:n])
		sizes, data = sizes[1:], data[n:]
	})
	return ok && len(sizes) == 0
}
