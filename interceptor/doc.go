// Package interceptor guards Temporal activities.
package interceptor
