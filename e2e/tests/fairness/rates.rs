//! How fast the victim transfers while another account fills the buffers of all connections that it may have.

use api::Isolation;

use crate::attack::Means;
use crate::programs::TCP;
use crate::stage::Stage;
use crate::victim::Rates;

/// Periods without and with the attack follow one another, because the rates of a machine drift.
const PERIODS: usize = 7;
/// The part of its rate that the victim keeps at least.
const KEPT: f64 = 0.8;
/// The buffers of many connections are full, and filled again each second: what is measured is memory, not CPU time.
const FULL: Means = Means::Program(TCP, "4 700 0 1", 1);

pub async fn measure(isolation: Isolation) {
    let stage = Stage::new(isolation).await.unwrap();
    let (mut before, mut during) = (Vec::new(), Vec::new());
    for _ in 0..PERIODS {
        let [without, with] = stage.rates(FULL).await.unwrap();
        before.push(without);
        during.push(with);
    }
    let kept = |rate: fn(&Rates) -> f64| {
        let [before, during] = [&before, &during].map(|rates| median(rates.iter().map(rate).collect()));
        (before, during, during / before)
    };
    for (name, (before, during, part)) in
        [("uploads", kept(|rates| rates.uploads)), ("TCP inside", kept(|rates| rates.inside))]
    {
        println!("| {name} ({isolation}) | {before:.0} MB/s | {during:.0} MB/s | {part:.2} |");
        assert!(part >= KEPT, "{isolation}: {name} fall to {part:.2} of their rate");
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
