package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/ignore"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Bounds on one chart with all that it depends on.
const (
	// MaxArchiveBytes bounds a packed chart.
	MaxArchiveBytes = 20 << 20
	// maxFileBytes bounds one file, as Helm does.
	maxFileBytes = 5 << 20
	maxChartSize = 100 << 20 // all files, unpacked
	maxFiles     = 10_000
	// maxNesting bounds charts in charts.
	maxNesting = 8
	// maxCharts bounds them in all.
	maxCharts = 500
)

// Read reads a chart's archive, a .tgz. A link, a path that leads out of the chart, or an archive of more than 20 MiB packed,
// 100 MiB unpacked, or 10,000 files is an error.
func Read(archive io.Reader) (*Chart, error) {
	data, err := io.ReadAll(io.LimitReader(archive, MaxArchiveBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxArchiveBytes {
		return nil, fmt.Errorf("%w: a chart's archive may have %d bytes", chart.ErrTooLarge, MaxArchiveBytes)
	}
	u := new(unpacker)
	files, err := u.archive(data)
	if err != nil {
		return nil, err
	}
	return u.chart(files)
}

// ReadFolder reads a chart from a folder of files, with the bounds of [Read]. It honours .helmignore, and follows no links.
// A dependency whose repository is file://PATH, relative to the folder, is read from there unless it is in charts/, as
// "helm dependency build" would copy it.
func ReadFolder(files fs.FS, dir string) (*Chart, error) {
	u := new(unpacker)
	found, err := u.withLocal(files, dir, 0)
	if err != nil {
		return nil, err
	}
	return u.chart(found)
}

// withLocal reads a folder, and the folders of the same files that it depends on.
func (u *unpacker) withLocal(source fs.FS, dir string, depth int) ([]*file, error) {
	u.read = append(u.read, dir)
	files, err := u.folder(source, dir)
	if err != nil {
		return nil, err
	}
	if files, err = u.vendored(files, depth); err != nil {
		return nil, err
	}
	missing, err := localDependencies(files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(dir, chartutil.ChartfileName), err)
	}
	for _, d := range missing {
		at := path.Join(dir, strings.TrimPrefix(d.Repository, "file://"))
		below, err := u.withLocal(source, at, depth+1)
		if err != nil {
			return nil, fmt.Errorf("the dependency %s of %s, %s: %w", d.Name, path.Join(dir, chartutil.ChartfileName), d.Repository, err)
		}
		for _, f := range below {
			files = append(files, &file{Name: "charts/" + localPrefix + d.Name + "/" + f.Name, Data: f.Data})
		}
	}
	return files, nil
}

// localPrefix tells folders of local dependencies from those in charts/.
const localPrefix = "local-"

// localDependencies lists the dependencies in other folders that are not in charts/.
func localDependencies(files []*file) ([]*helm.Dependency, error) {
	var metadata helm.Metadata
	there := map[string]bool{}
	for _, f := range files {
		switch parts := strings.Split(f.Name, "/"); {
		case f.Name == chartutil.ChartfileName, f.Name == "requirements.yaml":
			if err := yaml.Unmarshal(f.Data, &metadata); err != nil {
				return nil, err
			}
		case len(parts) == 3 && parts[0] == "charts" && parts[2] == chartutil.ChartfileName:
			var below helm.Metadata
			if err := yaml.Unmarshal(f.Data, &below); err != nil {
				return nil, err
			}
			there[below.Name] = true
		}
	}
	var missing []*helm.Dependency
	for _, d := range metadata.Dependencies {
		if d != nil && !there[d.Name] && strings.HasPrefix(d.Repository, "file://") && fs.ValidPath(d.Name) {
			there[d.Name] = true // once, also where it has several aliases
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// unpacker unpacks charts within the bounds on files, bytes and charts.
type unpacker struct {
	files, bytes, charts int
	read                 []string // folders
}

func (u *unpacker) chart(files []*file) (*Chart, error) {
	files, err := u.vendored(files, 0)
	if err != nil {
		return nil, err
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return nil, finding.Errorf("", finding.Position{}, "", "%s", err)
	}
	slices.Sort(u.read)
	return &Chart{files: files, metadata: *loaded.Metadata, folders: slices.Compact(u.read)}, nil
}

func (u *unpacker) count(name string, size int) error {
	u.files++
	u.bytes += size
	switch {
	case size > maxFileBytes:
		return fmt.Errorf("%w: file %s of the chart has more than %d bytes", chart.ErrTooLarge, name, maxFileBytes)
	case u.files > maxFiles || u.bytes > maxChartSize:
		return fmt.Errorf("%w: the chart has more than %d files or %d bytes", chart.ErrTooLarge, maxFiles, maxChartSize)
	}
	return nil
}

var driveName = lazyregexp.New(`^[a-zA-Z]:`)

// archive reads the files of a .tgz, without its one folder.
func (u *unpacker) archive(data []byte) ([]*file, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the chart is no .tgz archive: %w", err)
	}
	var files []*file
	seen := map[string]bool{}
	for entries := tar.NewReader(unzipped); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the chart's archive: %w", err)
		}
		if u.files++; u.files > maxFiles {
			return nil, u.count(header.Name, 0)
		}
		switch header.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader, tar.TypeXHeader:
			continue
		case tar.TypeReg:
		default:
			return nil, fmt.Errorf("the chart's archive has %q, which is a link or another thing that is no file", header.Name)
		}
		name, err := insideName(header.Name)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("the chart's archive has %q twice", header.Name)
		}
		seen[name] = true
		content, err := io.ReadAll(io.LimitReader(entries, maxFileBytes+1))
		if err != nil {
			return nil, fmt.Errorf("the chart's archive: %s: %w", name, err)
		}
		if err := u.count(name, len(content)); err != nil {
			return nil, err
		}
		files = append(files, &file{Name: name, Data: bytes.TrimPrefix(content, byteOrderMark)})
	}
	if len(files) == 0 {
		return nil, errors.New("the chart's archive has no files")
	}
	return files, nil
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// insideName is the name of an entry below the archive's one folder.
func insideName(entry string) (string, error) {
	name := strings.ReplaceAll(entry, `\`, "/")
	folder, rest, ok := strings.Cut(name, "/")
	clean := path.Clean(rest)
	if !ok || folder == ".." || folder == "" || !fs.ValidPath(clean) || clean == "." || driveName.MatchString(clean) {
		return "", fmt.Errorf("the chart's archive has %q, which does not lie in the chart's folder", entry)
	}
	return clean, nil
}

// folder reads the files below dir.
func (u *unpacker) folder(source fs.FS, dir string) ([]*file, error) {
	if !fs.ValidPath(dir) {
		return nil, fmt.Errorf("the chart's folder %q lies outside of the repository", dir)
	}
	if err := checkFolder(source, dir); err != nil {
		return nil, err
	}
	rules := ignore.Empty()
	helmIgnore, err := fs.ReadFile(source, path.Join(dir, ignore.HelmIgnore))
	if err == nil {
		if rules, err = ignore.Parse(bytes.NewReader(helmIgnore)); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(dir, ignore.HelmIgnore), err)
		}
	}
	rules.AddDefaults()
	var files []*file
	err = fs.WalkDir(source, dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		inside := name
		if dir != "." {
			inside = strings.TrimPrefix(name, dir+"/")
		}
		switch ignored := rules.Ignore(inside, info); {
		case e.IsDir() && ignored:
			return fs.SkipDir
		case e.IsDir():
			return u.count(name, 0)
		case ignored:
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s: is a link or another thing that is no file", name)
		}
		if err := u.count(name, int(min(info.Size(), maxFileBytes+1))); err != nil {
			return err
		}
		data, err := fs.ReadFile(source, name)
		if err == nil && int64(len(data)) > info.Size() {
			err = u.count(name, len(data)) // the file has grown
		}
		files = append(files, &file{Name: inside, Data: bytes.TrimPrefix(data, byteOrderMark)})
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(source, path.Join(dir, chartutil.ChartfileName)); err == nil && !slices.ContainsFunc(files, func(f *file) bool { return f.Name == chartutil.ChartfileName }) {
		return nil, ignored(path.Join(dir, ignore.HelmIgnore), helmIgnore)
	}
	return files, nil
}

// ignored is the error of a .helmignore that leaves out Chart.yaml.
func ignored(name string, text []byte) error {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("!")) {
			return finding.Errorf("", finding.Position{File: name, Line: i + 1}, "list what to leave out instead", "with %s Helm leaves out all that does not match, Chart.yaml too", bytes.TrimSpace(line))
		}
	}
	return finding.Errorf("", finding.Position{File: name}, "", "it leaves out Chart.yaml")
}

// checkFolder returns an error if a link is on the way to a folder, which what opens it may follow.
func checkFolder(source fs.FS, dir string) error {
	at := "."
	for _, part := range strings.Split(dir, "/") {
		if part == "." {
			continue
		}
		entries, err := fs.ReadDir(source, at)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == part })
		at = path.Join(at, part)
		switch {
		case i < 0:
			return &fs.PathError{Op: "open", Path: at, Err: fs.ErrNotExist}
		case !entries[i].IsDir():
			return fmt.Errorf("%s: is a link or another thing that is no folder", at)
		}
	}
	return nil
}

// vendored unpacks the archives in charts/ to folders, so that the bounds are those of all together, and not those of Helm,
// which are for each.
func (u *unpacker) vendored(files []*file, depth int) ([]*file, error) {
	all := make([]*file, 0, len(files))
	below := map[string]bool{} // the charts' folders
	for _, f := range files {
		if rest, ok := strings.CutPrefix(f.Name, "charts/"); ok {
			if folder, _, ok := strings.Cut(rest, "/"); ok {
				below[folder] = true
			}
		}
	}
	if u.charts += len(below); depth > maxNesting || u.charts > maxCharts {
		return nil, fmt.Errorf("%w: charts in charts nest deeper than %d, or are more than %d", chart.ErrTooLarge, maxNesting, maxCharts)
	}
	for _, f := range files {
		name, ok := strings.CutPrefix(f.Name, "charts/")
		if !ok || strings.Contains(name, "/") || path.Ext(name) != ".tgz" || strings.IndexAny(name, "_.") == 0 {
			all = append(all, f)
			continue
		}
		inside, err := u.archive(f.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if u.charts++; u.charts > maxCharts {
			return nil, fmt.Errorf("%w: the chart has more than %d charts below it", chart.ErrTooLarge, maxCharts)
		}
		folder := strings.TrimSuffix(name, ".tgz")
		for below[folder] {
			folder += "-"
		}
		below[folder] = true
		for _, b := range inside {
			all = append(all, &file{Name: "charts/" + folder + "/" + b.Name, Data: b.Data})
		}
	}
	return u.deeper(all, below, depth)
}

// deeper unpacks the archives of the charts in charts/.
func (u *unpacker) deeper(files []*file, folders map[string]bool, depth int) ([]*file, error) {
	if len(folders) == 0 {
		return files, nil
	}
	var all []*file
	inside := map[string][]*file{}
	var order []string
	for _, f := range files {
		rest, ok := strings.CutPrefix(f.Name, "charts/")
		folder, name, isBelow := strings.Cut(rest, "/")
		if !ok || !isBelow {
			all = append(all, f)
			continue
		}
		if inside[folder] == nil {
			order = append(order, folder)
		}
		inside[folder] = append(inside[folder], &file{Name: name, Data: f.Data})
	}
	for _, folder := range order {
		unpacked, err := u.vendored(inside[folder], depth+1)
		if err != nil {
			return nil, fmt.Errorf("charts/%s: %w", folder, err)
		}
		for _, f := range unpacked {
			all = append(all, &file{Name: "charts/" + folder + "/" + f.Name, Data: f.Data})
		}
	}
	return all, nil
}
