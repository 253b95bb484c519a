// Package kubeadm has kubeadm's own code make a control plane of three nodes
// on Cairn: its certificates, the static pods that it writes, its calls when a
// node joins and leaves.
package kubeadm
