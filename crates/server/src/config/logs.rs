//! The flags of the log.

use super::ConfigError;
use super::values::{Values, unusable};
use serde::Deserialize;
use telemetry::logging::{Format, Level, Options, Output, Rotation};

/// Rotation as it is written.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Written {
    maxsize: i64,
    maxage: i64,
    maxbackups: i64,
    localtime: bool,
    compress: bool,
}

pub(super) fn read(values: &Values) -> Result<Options, ConfigError> {
    let wrong = |text: String| Err(ConfigError::Value(text));
    match values.get("logger") {
        "zap" => {}
        "capnslog" => return wrong("--logger=capnslog is removed in v3.5".into()),
        other => return wrong(format!("unknown logger option {other:?}")),
    }
    let level = values.get("log-level");
    let level = Level::parse(level)
        .ok_or_else(|| unusable("log-level", level, "must be debug, info, warn, error, panic or fatal"))?;
    let format = values.get("log-format");
    let format = Format::parse(format)
        .ok_or_else(|| ConfigError::Value(format!("unknown log format: {format} (must be json or console)")))?;
    let mut words = values.words("log-outputs");
    if words.is_empty() {
        words.push("default".into());
    }
    if words.len() > 1 && words.iter().any(|word| word == "default") {
        return wrong("multi logoutput for \"default\" is not supported yet".into());
    }
    let mut outputs = Vec::new();
    for word in words {
        let output = match word.as_str() {
            "default" | "stderr" => Output::Stderr,
            "stdout" => Output::Stdout,
            "systemd/journal" => Output::Journal,
            path => Output::File(path.strip_prefix("file://").unwrap_or(path).into()),
        };
        if !outputs.contains(&output) {
            outputs.push(output);
        }
    }
    let rotation = match values.is_on("enable-log-rotation") {
        false => None,
        true => {
            let targets = outputs.iter().filter(|output| !matches!(output, Output::Stderr | Output::Stdout)).count();
            if targets != 1 || outputs.contains(&Output::Journal) {
                return wrong(
                    "--log-outputs requires a single file path when --log-rotate-config-json is defined".into(),
                );
            }
            Some(rotation(values.get("log-rotation-config-json"))?)
        }
    };
    Ok(Options { level, format, outputs, rotation })
}

fn rotation(text: &str) -> Result<Rotation, ConfigError> {
    let written: Written = serde_json::from_str(text).map_err(|error| {
        let what =
            if error.is_data() { "invalid log rotation config" } else { "improperly formatted log rotation config" };
        ConfigError::Value(format!("{what}: {error}"))
    })?;
    let limit = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    Ok(Rotation {
        // Nothing said is what the tool's default says.
        bytes_max: limit(written.maxsize).unwrap_or(100).saturating_mul(1 << 20),
        age_days_max: limit(written.maxage),
        backups_max: limit(written.maxbackups).map(|backups| usize::try_from(backups).unwrap_or(usize::MAX)),
        local_time: written.localtime,
        compress: written.compress,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(args: &[&str]) -> Result<Options, ConfigError> {
        read(&super::super::flags::parse(args.iter().map(|arg| arg.to_string()))?)
    }

    #[test]
    fn outputs() {
        assert_eq!(logs(&[]).expect("defaults").outputs, [Output::Stderr]);
        let several = logs(&["--log-outputs=stderr,/var/log/x,stdout,stderr"]).expect("valid");
        assert_eq!(several.outputs, [Output::Stderr, Output::File("/var/log/x".into()), Output::Stdout]);
        for bad in
            ["--log-outputs=default,x", "--logger=capnslog", "--logger=slog", "--log-level=loud", "--log-format=xml"]
        {
            assert!(logs(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn rotation_needs_one_file() {
        let rotated = |outputs: &str, config: &str| {
            logs(&[
                "--enable-log-rotation",
                &format!("--log-outputs={outputs}"),
                &format!("--log-rotation-config-json={config}"),
            ])
        };
        let some = rotated("a.log", r#"{"maxsize": 2, "maxbackups": 3, "compress": true}"#).expect("valid");
        let rotation = some.rotation.expect("asked for");
        assert_eq!((rotation.bytes_max, rotation.backups_max, rotation.age_days_max), (2 << 20, Some(3), None));
        assert_eq!(rotated("stderr,a.log", "{}").expect("valid").rotation.expect("asked for").bytes_max, 100 << 20);
        for (outputs, config) in [("stderr", "{}"), ("a,b", "{}"), ("a", "{"), ("a", r#"{"maxsize": "2"}"#)] {
            assert!(rotated(outputs, config).is_err(), "{outputs} {config}");
        }
    }
}
