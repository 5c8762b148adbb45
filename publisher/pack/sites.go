package pack

import (
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// SiteFiles returns the files of a tree with site values: none without a document, and no rows without clusters.
func SiteFiles(document *sitevalues.Document, rows []sitevalues.Row) ([]bundle.File, error) {
	if document == nil {
		return nil, nil
	}
	data, err := document.Marshal()
	if err != nil {
		return nil, err
	}
	files := []bundle.File{{Path: sitevalues.DocumentPath, Data: data}}
	if data, err = sitevalues.MarshalRows(rows); len(data) > 0 {
		files = append(files, bundle.File{Path: sitevalues.RowsPath, Data: data})
	}
	return files, err
}
