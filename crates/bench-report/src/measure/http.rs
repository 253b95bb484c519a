//! One page by HTTP.

use std::time::Duration;

use bench::{Place, open};
use client::Pages;

/// How long a page may take.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Fetches the page at `path`.
pub(super) async fn page(place: &Place, path: &str) -> Result<String, String> {
    let fetch = async {
        let socket = open(place).await.map_err(|error| error.to_string())?;
        let mut pages = Pages::over(socket, &place.address, None).await?;
        pages.get(path).await.map_err(|error| error.to_string())
    };
    tokio::time::timeout(TIME_MAX, fetch).await.unwrap_or_else(|_| Err(format!("no answer within {TIME_MAX:?}")))
}
