# Completes the command lines of etcdctl in PowerShell. Use: etcdctl completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName etcdctl -ScriptBlock {
    param($word, $line, $place)
    $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" } | Where-Object { $_ -ne $word })
    & etcdctl __complete @words "$word" 2>$null | Where-Object { -not $_.StartsWith(':') } | ForEach-Object {
        $name, $help = $_ -split "`t", 2
        if (-not $help) { $help = $name }
        [System.Management.Automation.CompletionResult]::new($name, $name, 'ParameterValue', $help)
    }
}
