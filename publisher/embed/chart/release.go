package chart

// Release is a HelmRelease of Flux with the chart that it needs.
type Release struct {
	// Namespace and Name are the HelmRelease's own.
	Namespace, Name string
	// Source says where the chart is.
	Source Source
	// Values are those of the release, with those of ConfigMaps among the objects that valuesFrom names.
	Values map[string]any
	// ReleaseName and TargetNamespace are what .Release has in it.
	ReleaseName, TargetNamespace string
	// Notes say in sentences what is left out, such as values from a Secret.
	Notes []string
	// Err is why the chart is not known, such as a source that is not among the objects. Nil if it is.
	Err error
}

// Source is a place of a chart.
type Source struct {
	// Kind is that of the source: HelmRepository, OCIRepository, GitRepository or Bucket.
	Kind string
	// URL is the source's. One of a registry begins with oci://, and has the chart's name at its end.
	URL string
	// Chart is the chart's name, or its path in a GitRepository or Bucket. Empty with an OCIRepository.
	Chart string
	// Version is the version or range that is asked for; empty means the newest.
	Version string
	// Tag, Digest and SemVer are those of an OCIRepository.
	Tag, Digest, SemVer string
	// Commit, Branch are those of a GitRepository; Tag and SemVer as well.
	Commit, Branch string
}

// Releases lists the HelmReleases among objects, in their order, with their charts. It asks nobody.
func Releases(objects []map[string]any) []Release { return nil }
