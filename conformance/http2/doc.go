// Package http2 holds what RFC 9113 (HTTP/2), RFC 7541 (HPACK) and gRPC over
// HTTP/2 ask of a server, case by case, at the level of frames: the published
// suite h2spec, and cases of our own for what it leaves out.
package http2
