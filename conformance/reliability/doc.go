// Package reliability holds the black-box tests of what must never happen:
// a lost write, a repeated event, an answer before the disk has it, a member
// that one client can starve or fill.
//
// The tests start the server as an operator would (CAIRN_BIN, or the release
// build; SERVER=etcd proves the tests themselves against the genuine server)
// and look at it through the network, the disk and strace. Sizes come from the
// environment, so that a short run fits into CI and a long one finds what is
// rare; docs/reliability.md lists them.
package reliability
