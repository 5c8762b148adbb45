// Package airgap carries bundles to sites without a network, and their reports back, as OCI layouts in
// one uncompressed tar that ordinary tools read as well.
//
// Begin with airgap/export to write bundles and with Open to read them, and with WriteReports, ReadReports, WriteAck and ReadAck for
// the way back. A file's bytes depend on its content alone. Files to read come from
// outside: sizes and counts are bounded, and nothing read here is trusted. Bundles still have to pass
// bundle.Verify, reports and acknowledgements bundle.OpenEnvelope.
package airgap
