package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Bounds on what one job asks of the parent. The engines have closer ones; these are for a child that does not keep them.
const (
	maxQuestions = 200_000
	maxFileBytes = 32<<20 + 1 // of one file: a byte more than any engine takes
	maxReadBytes = 512 << 20
)

// answerer answers the questions of one job.
type answerer struct {
	ctx   context.Context // of the job
	from  Source
	trees []fs.FS
	errs  []error
	asked int
	bytes int
}

func (a *answerer) answer(q question) message {
	reply, blobs, err := a.find(q)
	if err != nil {
		a.errs = append(a.errs, err)
		return message{Answer: &answer{Err: len(a.errs), Text: err.Error(), Missing: errors.Is(err, fs.ErrNotExist)}}
	}
	return message{Answer: &reply, blobs: blobs}
}

func (a *answerer) find(q question) (reply answer, blobs [][]byte, err error) {
	if err := a.ctx.Err(); err != nil {
		return reply, nil, err
	}
	if a.asked++; a.asked > maxQuestions {
		return reply, nil, fmt.Errorf("more than %d questions for files", maxQuestions)
	}
	switch {
	case q.Remote != nil && a.from.Remote != nil:
		tree, err := a.from.Remote(a.ctx, q.Remote.URL, q.Remote.Commit)
		a.trees = append(a.trees, tree)
		return answer{Tree: len(a.trees) - 1}, nil, err
	case q.Read != nil:
		var data []byte
		reply.Stat, data, err = a.read(*q.Read)
		return reply, [][]byte{data}, err
	case q.List != nil:
		reply.Entries, err = a.list(*q.List)
		return reply, nil, err
	case q.Stat != nil:
		reply.Stat, err = a.stat(*q.Stat)
		return reply, nil, err
	}
	return reply, nil, errors.New("the question is not known")
}

func (a *answerer) tree(f file) (fs.FS, error) {
	if f.Tree < 0 || f.Tree >= len(a.trees) || a.trees[f.Tree] == nil || !fs.ValidPath(f.Name) {
		return nil, &fs.PathError{Op: "open", Path: f.Name, Err: fs.ErrInvalid}
	}
	return a.trees[f.Tree], nil
}

// read returns a file with its content, or a folder.
func (a *answerer) read(f file) (*entry, []byte, error) {
	tree, err := a.tree(f)
	if err != nil {
		return nil, nil, err
	}
	opened, err := tree.Open(f.Name)
	if err != nil {
		return nil, nil, err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return nil, nil, err
	}
	is := &entry{info.Name(), info.Mode(), info.Size()}
	if info.IsDir() {
		return is, nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(opened, maxFileBytes))
	if a.bytes += len(data); a.bytes > maxReadBytes {
		return nil, nil, fmt.Errorf("files of more than %d bytes are read", maxReadBytes)
	}
	return is, data, err
}

func (a *answerer) list(f file) ([]entry, error) {
	tree, err := a.tree(f)
	if err != nil {
		return nil, err
	}
	found, err := fs.ReadDir(tree, f.Name)
	all := make([]entry, len(found))
	for i, e := range found {
		all[i] = entry{Name: e.Name(), Mode: e.Type()}
	}
	return all, err
}

func (a *answerer) stat(f file) (*entry, error) {
	tree, err := a.tree(f)
	if err != nil {
		return nil, err
	}
	info, err := fs.Stat(tree, f.Name)
	if err != nil {
		return nil, err
	}
	return &entry{info.Name(), info.Mode(), info.Size()}, nil
}
