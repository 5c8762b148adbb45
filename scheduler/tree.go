package scheduler

import (
	"slices"
	"strings"
)

// Kalypso's files beside the assignments.
const (
	// ReadmeFile is in the folder of every cluster type. It contains ReadmeText without a line break.
	ReadmeFile = "README.md"
	ReadmeText = "This folder contains deployment targets scheduled on the cluster type"
	// TrackingFile names the base commit, without a line break.
	TrackingFile = ".github/tracking/Promoted_Commit_Id"
)

// Tree lists the files of a result at Kalypso's paths, sorted: for each cluster type a
// README.md and the folders of its assignments, and the tracking file if the base commit is known.
// It leaves out failed assignments.
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
