//! The output of detached executions over connections that are lost.

use futures_util::TryStreamExt;
use sandboxd_client::{Code, Output};

use crate::proxy::{Fault, Proxy};

#[tokio::test(flavor = "multi_thread")]
async fn output_is_reattached_after_the_last_line() {
    let proxy = Proxy::start();
    let client = proxy.builder().retries(0).build().unwrap();
    let command =
        client.create("ubuntu:24.04").await.unwrap().start("echo one; echo two; exit 4").await.unwrap();
    let mut output = command.follow();
    proxy.inject(Fault::LostAnswer);
    proxy.inject(Fault::Status { status: 503, code: "RESOURCE_EXHAUSTED", retry_after_s: 0 });
    assert_eq!(output.try_next().await.unwrap(), Some(Output::Stdout("one".into())));
    let offset = output.offset().unwrap();
    let mut rest = command.follow_from(offset.as_str());
    proxy.inject(Fault::LostAnswer);
    assert_eq!(rest.try_next().await.unwrap(), Some(Output::Stdout("two".into())));
    let last = proxy.seen().pop().unwrap();
    assert_eq!(last.headers["last-event-id"], offset.as_str());
    let Some(Output::Done(done)) = rest.try_next().await.unwrap() else { panic!() };
    assert_eq!((done.exit_code, rest.try_next().await.unwrap()), (Some(4), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_errors_are_not_retried() {
    let proxy = Proxy::start();
    let client = proxy.client();
    let sandbox = client.create("ubuntu:24.04").await.unwrap();
    let nobody = sandbox.execution("ex_00000000000000000000").unwrap();
    let error = nobody.follow().try_next().await.unwrap_err();
    assert_eq!(error.code(), Code::ExecutionNotFound);
    assert_eq!(nobody.attach().await.map(drop).unwrap_err().code(), Code::ExecutionNotFound);
}
