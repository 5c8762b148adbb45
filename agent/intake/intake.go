// Package intake stores the streams of a site package.
package intake
