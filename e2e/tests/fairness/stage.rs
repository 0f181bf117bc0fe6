//! One service with its victim, which all attacks of a run share, and the measurement of one attack.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::Isolation;
use e2e::service::{Service, ServiceOptions};

use crate::attack::{Attack, Attacker, Held, Means};
use crate::figures::Samples;
use crate::host::{Memory, Taken};
use crate::outside::{NETWORK, Outside};
use crate::victim::{Rates, Victim};

/// Beyond this the rounds of a period end, however few they are.
const MAX_STRETCH: u32 = 4;

/// How long the victim is measured.
#[derive(Debug, Clone, Copy)]
pub struct Period {
    pub before: Duration,
    pub during: Duration,
    /// Rounds before the attack, and during it.
    pub rounds: [usize; 2],
    /// Rounds before earlier attacks count, too, up to this number: a short period alone has too few.
    pub kept: usize,
}

/// What was measured during one attack.
pub struct Outcome {
    pub attack: Attack,
    pub isolation: Isolation,
    pub held: Held,
    /// The attack does not work.
    pub unbegun: Option<String>,
    pub before: Samples,
    pub during: Samples,
    pub taken: Taken,
    /// The end of the attack failed.
    pub unended: Option<String>,
}

pub struct Stage {
    // Dropped before the network.
    victim: Victim,
    service: Arc<Service>,
    isolation: Isolation,
    /// The victim's figures before the last attack.
    calm: Samples,
    _outside: Outside,
}

impl Stage {
    pub async fn new(isolation: Isolation) -> Result<Self> {
        let outside = Outside::new()?;
        let options = ServiceOptions::default()
            .default_capacity()
            .with("isolation", "default", &format!("{:?}", isolation.name()))
            .with("egress", "allow_private", &format!("[\"{NETWORK}\"]"))
            .with("egress", "resolver", &format!("{:?}", Outside::resolver()))
            .with("e2b", "enabled", "true")
            .with("runtime", "lxcfs", "\"auto\"")
            .with("log", "level", "\"warn\"");
        let service = Arc::new(Service::start(&options).await?);
        let victim = Victim::new(Arc::clone(&service), isolation).await.context("preparing the victim")?;
        // The first rounds fill caches.
        for _ in 0..3 {
            victim.round(&mut Samples::default()).await;
        }
        let mut calm = Samples::default();
        victim.round(&mut calm).await;
        Ok(Self { victim, service, isolation, calm, _outside: outside })
    }

    /// The victim's figures without and with one attack.
    pub async fn measure(&mut self, attack: &Attack, period: Period) -> Result<Outcome> {
        let mut before = Samples::default();
        self.rounds(&mut before, period.before, period.rounds[0], || Ok(())).await?;
        before.continue_from(&self.calm, period.kept);
        self.calm = before.clone();
        let memory = Memory::before(&self.service)?;
        let mut taken = Taken::default();
        let mut attacker = Attacker::new(Arc::clone(&self.service), self.isolation).await?;
        let (held, unbegun) = match attacker.begin(attack.means).await {
            Ok(held) => (held, None),
            Err(error) => (Held { what: "nothing".to_owned(), is_killed: false }, Some(format!("{error:#}"))),
        };
        let mut during = Samples::default();
        let sandboxes = attacker.sandboxes.clone();
        let update = || memory.update(&self.service, &sandboxes, &mut taken);
        self.rounds(&mut during, period.during, period.rounds[1], update).await?;
        let unended = attacker.end().await.err().map(|error| format!("{error:#}"));
        let isolation = self.isolation;
        Ok(Outcome { attack: *attack, isolation, held, unbegun, before, during, taken, unended })
    }

    /// The victim's rates without and with one attack, once each.
    pub async fn rates(&self, attack: Means) -> Result<[Rates; 2]> {
        let before = self.victim.rates().await?;
        let mut attacker = Attacker::new(Arc::clone(&self.service), self.isolation).await?;
        let held = attacker.begin(attack).await?;
        let during =
            self.victim.rates().await.with_context(|| format!("while an attacker has {}", held.what))?;
        ensure!(!held.is_killed, "the attack was killed: {}", held.what);
        attacker.end().await?;
        Ok([before, during])
    }

    async fn rounds(
        &self,
        samples: &mut Samples,
        period: Duration,
        rounds: usize,
        mut after_each: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let begun = Instant::now();
        let enough = |samples: &Samples| {
            let elapsed = begun.elapsed();
            elapsed >= period
                && (samples.rounds >= rounds || elapsed >= MAX_STRETCH * period.max(Duration::from_secs(1)))
        };
        while !enough(samples) {
            self.victim.round(samples).await;
            after_each()?;
        }
        Ok(())
    }
}
