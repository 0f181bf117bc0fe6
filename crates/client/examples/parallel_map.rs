//! Applies a function to twenty inputs in parallel, each in its own sandbox. Results keep the order of the inputs.
//!
//! `cargo run -p sandboxd-client --example parallel_map`, with a service as `Client::from_env` finds it.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use sandboxd_client::{Client, ClientBuilder, SandboxState};

const INPUTS: u64 = 20;
const AT_ONCE: usize = 20;
/// If the service limits creates per minute, the library waits for the time in Retry-After.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(90);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientBuilder::from_env().max_retry_wait(MAX_RETRY_WAIT).retries(5).build()?;
    let job = format!("squares-{}", std::process::id());
    let results: Vec<(u64, String)> = stream::iter(1..=INPUTS)
        .map(async |input| sandboxd_client::Result::Ok((input, square(&client, &job, input).await?)))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    for (input, result) in results {
        println!("{input}: {result}");
    }
    let left = client.list().metadata("job", &job).state(SandboxState::Running).page(0).await?;
    println!("{INPUTS} sandboxes, {} left", left.pagination.total);
    Ok(())
}

/// The guard terminates the sandbox also after an error.
async fn square(client: &Client, job: &str, input: u64) -> sandboxd_client::Result<String> {
    let image = std::env::var("IMAGE").unwrap_or_else(|_| "ubuntu:24.04".to_owned());
    let sandbox = client.create(image).metadata("job", job).await?.terminate_on_drop();
    sandbox.files().write("input", input.to_string()).await?;
    let result = sandbox.execute("n=$(cat input); echo $((n * n))").await?;
    sandbox.terminate().await?;
    Ok(result.stdout.trim().to_owned())
}
