//! One page by HTTP.

use std::time::Duration;

use bench::{Place, open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a page may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How large it may be.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// The page at `path`, or why there is none.
pub(super) async fn page(place: &Place, path: &str) -> Result<String, String> {
    match tokio::time::timeout(TIME_MAX, fetch(place, path)).await {
        Ok(page) => page,
        Err(_) => Err(format!("no answer within {TIME_MAX:?}")),
    }
}

async fn fetch(place: &Place, path: &str) -> Result<String, String> {
    let mut socket = open(place).await.map_err(|error| error.to_string())?;
    // Version 1.0: the end of the connection is the end of the page, and it comes in one piece.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", place.address);
    socket.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    let read = socket.take(PAGE_BYTES_MAX + 1).read_to_end(&mut answer).await;
    // Some end TLS without a goodbye; whether the page is whole its length says.
    if let Err(error) = read.as_ref().map(|_| ()).map_err(std::io::Error::kind)
        && error != std::io::ErrorKind::UnexpectedEof
    {
        return Err(error.to_string());
    }
    if answer.len() as u64 > PAGE_BYTES_MAX {
        return Err(format!("an answer of more than {} MiB", PAGE_BYTES_MAX >> 20));
    }
    body(&String::from_utf8_lossy(&answer)).map(str::to_owned)
}

/// What is behind the head of `answer`.
fn body(answer: &str) -> Result<&str, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer that is not HTTP")?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("the answer `{status}`"));
    }
    let length =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    match length.and_then(|(_, length)| length.trim().parse::<usize>().ok()) {
        Some(length) if length != body.len() => Err("an answer that is cut off".into()),
        _ => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_or_refused() {
        assert_eq!(body("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"), Ok("abc"));
        assert_eq!(body("HTTP/1.0 200 OK\r\n\r\n"), Ok(""));
        assert!(body("HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nabc").is_err());
        assert_eq!(body("HTTP/1.1 404 Not Found\r\n\r\n"), Err("the answer `HTTP/1.1 404 Not Found`".into()));
        assert!(body("").is_err());
    }
}
