package sandbox

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// Bounds on what one side takes of the other.
const (
	maxHead  = 16 << 20
	maxBlobs = 20_000
	maxBytes = 192 << 20 // of all blobs of one message
)

// message is what the two sides send each other. One field is set, but for Alive.
type message struct {
	// of the parent
	Setup  *setup  `json:"setup,omitempty"`
	Job    *job    `json:"job,omitempty"`
	Answer *answer `json:"answer,omitempty"`
	// of the child
	Ready    []string  `json:"ready,omitempty"` // how it is confined
	Alive    bool      `json:"alive,omitempty"` // the job goes on
	Question *question `json:"question,omitempty"`
	Outcome  *outcome  `json:"outcome,omitempty"`

	blobs [][]byte
}

// setup has the limits of a child.
type setup struct {
	Memory int64 `json:"memory"`
	CPU    int64 `json:"cpu"` // nanoseconds for each job
}

// question asks for a file, a folder, or the tree of another repository, which then has the next number.
type question struct {
	Read, List, Stat *file  `json:",omitempty"`
	Remote           *place `json:",omitempty"`
}

type file struct {
	Tree int    `json:"tree"`
	Name string `json:"name"`
}

type place struct {
	URL    string `json:"url"`
	Commit string `json:"commit"`
}

// answer is a file's content in a blob, or one of the others.
type answer struct {
	Stat    *entry  `json:"stat,omitempty"`
	Entries []entry `json:"entries,omitempty"`
	Tree    int     `json:"tree,omitempty"`
	// Err is the number of the parent's error plus one, with its text.
	Err     int    `json:"err,omitempty"`
	Text    string `json:"text,omitempty"`
	Missing bool   `json:"missing,omitempty"` // it wraps fs.ErrNotExist
}

type entry struct {
	Name string      `json:"name"`
	Mode fs.FileMode `json:"mode"`
	Size int64       `json:"size"`
}

// conn is a connection over two pipes. Any goroutine may send, and one receives.
type conn struct {
	r  *bufio.Reader
	mu sync.Mutex
	w  *bufio.Writer
}

func newConn(r io.Reader, w io.Writer) *conn {
	return &conn{r: bufio.NewReaderSize(r, 64<<10), w: bufio.NewWriterSize(w, 64<<10)}
}

// send writes the length of the head, the number of blobs and their lengths, each as 32 bits, then head and blobs.
func (c *conn) send(m message) error {
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	size := 0
	for _, b := range m.blobs {
		size += len(b)
	}
	if len(head) > maxHead || len(m.blobs) > maxBlobs || size > maxBytes {
		return fmt.Errorf("a message of %d bytes with %d files of %d bytes is too large", len(head), len(m.blobs), size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lengths := binary.BigEndian.AppendUint32(nil, uint32(len(head)))
	lengths = binary.BigEndian.AppendUint32(lengths, uint32(len(m.blobs)))
	for _, b := range m.blobs {
		lengths = binary.BigEndian.AppendUint32(lengths, uint32(len(b)))
	}
	for _, part := range append([][]byte{lengths, head}, m.blobs...) {
		if _, err := c.w.Write(part); err != nil {
			return err
		}
	}
	return c.w.Flush()
}

var errMessage = errors.New("a message is too large")

func (c *conn) receive() (m message, err error) {
	head, err := c.lengths(2)
	if err != nil {
		return m, err
	}
	if head[0] > maxHead || head[1] > maxBlobs {
		return m, errMessage
	}
	sizes, err := c.lengths(int(head[1]))
	if err != nil {
		return m, err
	}
	sum := uint64(0)
	for _, n := range sizes {
		sum += uint64(n)
	}
	if sum > maxBytes {
		return m, errMessage
	}
	data := make([]byte, head[0])
	if _, err := io.ReadFull(c.r, data); err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	for _, n := range sizes {
		blob := make([]byte, n)
		if _, err := io.ReadFull(c.r, blob); err != nil {
			return m, err
		}
		m.blobs = append(m.blobs, blob)
	}
	return m, nil
}

func (c *conn) lengths(n int) ([]uint32, error) {
	data := make([]byte, 4*n)
	if _, err := io.ReadFull(c.r, data); err != nil {
		return nil, err
	}
	all := make([]uint32, n)
	for i := range all {
		all[i] = binary.BigEndian.Uint32(data[4*i:])
	}
	return all, nil
}
