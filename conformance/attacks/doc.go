// Package attacks lets one client attack the server while another one works.
//
// An attacker is a process of its own at the lowest priority: it stands for
// other machines, so the processor that it needs is not the server's fault,
// and there is no less of it when the server is idle. It speaks HTTP/2 byte by
// byte from prepared buffers, to loopback only. The good client is a process of
// its own, too: a read each millisecond and a put each ten on one connection,
// by the clock and not by the answers.
//
// Judged is what must hold in any case: the server lives, its memory is
// bounded, the good client gets every answer. How long that takes, and what the
// attacker got, is reported as a table (docs/reliability.md).
package attacks
