// Package gateway asks the JSON gateway and the HTTP pages of the genuine
// server and of the one under test the same things, over HTTP/1.1 and HTTP/2,
// and compares status, headers and bodies. What belongs to a server (ids, terms,
// sizes) is masked.
package gateway
