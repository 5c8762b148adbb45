package scheduler

import (
	"slices"
	"strings"
)

// What Kalypso writes besides the assignments.
const (
	// ReadmeFile lies in the folder of every cluster type, with ReadmeText in it and no line break.
	ReadmeFile = "README.md"
	ReadmeText = "This folder contains deployment targets scheduled on the cluster type"
	// TrackingFile names the base commit, without a line break.
	TrackingFile = ".github/tracking/Promoted_Commit_Id"
)

// Tree lists the files of a result where Kalypso puts them, sorted by path: for each cluster type a
// README.md and the folders of its assignments, and the tracking file where the base commit is known.
// What failed is not in it.
func Tree(r *Result) []File {
	var files []File
	if r.BaseCommit != "" {
		files = append(files, File{Path: TrackingFile, Data: []byte(r.BaseCommit)})
	}
	for _, ct := range r.ClusterTypes {
		files = append(files, File{Path: ct.Name + "/" + ReadmeFile, Data: []byte(ReadmeText)})
		for _, a := range ct.Assignments {
			for _, f := range a.Files {
				files = append(files, File{Path: ct.Name + "/" + a.Name + "/" + f.Path, Data: f.Data})
			}
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}
