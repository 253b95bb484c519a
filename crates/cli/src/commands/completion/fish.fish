# Completes the command lines of etcdctl in fish. Use: etcdctl completion fish | source
function __etcdctl_complete
    set -l words (commandline -opc)
    etcdctl __complete $words[2..-1] (commandline -ct) 2>/dev/null | string match -v ':*'
end
complete -c etcdctl -f -a '(__etcdctl_complete)'
