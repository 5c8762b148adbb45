package airgap

import (
	"io"
)

// copyBytes is the size of a buffer for content, in bytes: smaller ones cost a tenth of the throughput.
const copyBytes = 1 << 20

// buffers are those of copyHashed.
type buffers [2][]byte

func newBuffers() *buffers { return &buffers{make([]byte, copyBytes), make([]byte, copyBytes)} }

// copyHashed copies r to w, and writes the same bytes to hash meanwhile: hashing a block takes as long as writing it to a
// fast disk. After it has returned, nothing is written to hash.
func copyHashed(w, hash io.Writer, r io.Reader, b *buffers) error {
	blocks, hashed := make(chan []byte, len(b)), make(chan struct{}, len(b))
	go func() {
		defer close(hashed)
		for block := range blocks {
			_, _ = hash.Write(block) // never an error
			hashed <- struct{}{}
		}
	}()
	err := copyBlocks(w, r, b, blocks, hashed)
	close(blocks)
	for range hashed { // until the last block is hashed
	}
	return err
}

func copyBlocks(w io.Writer, r io.Reader, b *buffers, blocks chan<- []byte, hashed <-chan struct{}) error {
	for i := 0; ; i++ {
		if i >= len(b) {
			<-hashed // what was in this buffer
		}
		block, err := fill(r, b[i%len(b)])
		if len(block) > 0 {
			blocks <- block
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF: // a wrapped one is an error of r
			return nil
		case err != nil:
			return err
		}
	}
}

// fill reads into p until it is full, or r ends. It returns what was read, with r's error.
func fill(r io.Reader, p []byte) (read []byte, err error) {
	n := 0
	for n < len(p) && err == nil {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	return p[:n], err
}
