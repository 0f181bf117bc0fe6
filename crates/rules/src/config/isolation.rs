//! Which isolation a sandbox gets: what the caller asks for, within what the operator allows and the host has.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Isolation, IsolationChoice};

use crate::config::error::ConfigError;
use crate::images::reference::is_same_image;
use crate::text::quoted::alternatives;

/// The operator's choices for an image or an account. An absent one is that for all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IsolationLevels {
    /// What `auto` means.
    pub default: Option<Isolation>,
    /// Callers cannot choose a weaker one.
    pub minimum: Option<Isolation>,
}

/// The operator's choices, and what this host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsolationPolicy {
    /// At least one.
    pub available: Vec<Isolation>,
    pub default: Isolation,
    pub minimum: Isolation,
    pub images: BTreeMap<String, IsolationLevels>,
    pub accounts: BTreeMap<String, IsolationLevels>,
}

impl Default for IsolationPolicy {
    /// Containers only.
    fn default() -> Self {
        Self {
            available: vec![Isolation::Container],
            default: Isolation::Container,
            minimum: Isolation::Container,
            images: BTreeMap::new(),
            accounts: BTreeMap::new(),
        }
    }
}

impl IsolationPolicy {
    /// Every isolation that the policy names.
    pub fn named(&self) -> impl Iterator<Item = Isolation> {
        let single = self.images.values().chain(self.accounts.values());
        let levels = single.flat_map(|levels| [levels.default, levels.minimum]).flatten();
        [self.default, self.minimum].into_iter().chain(levels)
    }
}

/// The policy as it applies to one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IsolationRules {
    policy: Arc<IsolationPolicy>,
    own: IsolationLevels,
    floor: Isolation,
}

impl IsolationRules {
    /// The rules for sandboxes of an account without a snapshot below them.
    pub fn new(policy: &Arc<IsolationPolicy>, account: &str) -> Self {
        let own = policy.accounts.get(account).copied().unwrap_or_default();
        Self { policy: Arc::clone(policy), own, floor: Isolation::default() }
    }

    /// For a sandbox above a snapshot: it gets at least the isolation of the sandbox that the snapshot was taken of. Otherwise a
    /// snapshot would be a way around the minimum of an image.
    #[must_use]
    pub fn at_least(self, floor: Isolation) -> Self {
        Self { floor, ..self }
    }

    /// For a sandbox above a snapshot with an isolation and an image, which may have several names: the rules may be stricter than those
    /// at the time of the snapshot, or on its host.
    #[must_use]
    pub fn above<S: AsRef<str>>(self, isolation: Isolation, images: &[S]) -> Self {
        let of_images = images.iter().map(|image| self.minimum(image.as_ref())).max().unwrap_or_default();
        self.at_least(isolation.max(of_images))
    }

    /// What the host has and the operator allows, the weakest first.
    pub fn available(&self) -> &[Isolation] {
        &self.policy.available
    }

    /// The weakest that the caller can get with this image.
    pub fn minimum(&self, image: &str) -> Isolation {
        self.operators_minimum(image).max(self.floor)
    }

    /// Without what the sandbox is created from.
    fn operators_minimum(&self, image: &str) -> Isolation {
        let of_image = self.of_image(image).minimum;
        self.policy.minimum.max(of_image.max(self.own.minimum).unwrap_or_default())
    }

    /// What `auto` means with this image. Of the choices for the image and for the account the stronger one counts.
    pub fn automatic(&self, image: &str) -> Isolation {
        let special = self.of_image(image).default.max(self.own.default);
        special.unwrap_or(self.policy.default).max(self.minimum(image))
    }

    /// The isolation of a new sandbox, or why the wanted one is refused.
    pub fn choose(&self, wanted: IsolationChoice, image: &str) -> Result<Isolation, ConfigError> {
        let Some(named) = wanted.named() else { return Ok(self.automatic(image)) };
        let minimum = self.minimum(image);
        let allowed = self.available().iter().filter(|isolation| **isolation >= minimum);
        let allowed: Vec<Isolation> = allowed.copied().collect();
        if allowed.contains(&named) {
            return Ok(named);
        }
        let names: Vec<String> = ["auto"]
            .into_iter()
            .chain(allowed.iter().map(|it| it.name()))
            .map(|it| format!("'{it}'"))
            .collect();
        let mut alternatives = alternatives(&names);
        // Without the snapshot or template the caller could have it.
        if named < self.floor && named >= self.operators_minimum(image) && self.available().contains(&named) {
            let floor = self.floor;
            alternatives.push_str(&format!(
                ": the snapshot or template was made under '{floor}', or from an image that requires it"
            ));
        }
        Err(ConfigError::text("isolation", named.name(), alternatives))
    }

    /// An image has its levels by all its names: otherwise another form of a reference would be a way around a minimum.
    fn of_image(&self, image: &str) -> IsolationLevels {
        let of_name = || self.policy.images.iter().find(|(name, _)| is_same_image(name, image));
        let exact = self.policy.images.get(image);
        exact.or_else(|| of_name().map(|(_, levels)| levels)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Isolation::{Container, Gvisor};

    const BOTH: [Isolation; 2] = [Container, Gvisor];

    fn levels(default: Option<Isolation>, minimum: Option<Isolation>) -> IsolationLevels {
        IsolationLevels { default, minimum }
    }

    fn policy(default: Isolation, minimum: Isolation) -> IsolationPolicy {
        IsolationPolicy { available: BOTH.to_vec(), default, minimum, ..IsolationPolicy::default() }
    }

    fn of(policy: IsolationPolicy, account: &str) -> IsolationRules {
        IsolationRules::new(&Arc::new(policy), account)
    }

    #[test]
    fn auto_is_the_operators_choice_and_others_are_the_callers() {
        for default in BOTH {
            let rules = of(policy(default, Container), "a");
            assert_eq!(rules.choose(IsolationChoice::Auto, "i"), Ok(default));
            assert_eq!(rules.choose(IsolationChoice::Container, "i"), Ok(Container));
            assert_eq!(rules.choose(IsolationChoice::Gvisor, "i"), Ok(Gvisor));
        }
    }

    #[test]
    fn images_and_accounts_have_their_own_choice_and_the_stronger_one_counts() {
        let mut policy = policy(Container, Container);
        policy.images.insert("strong".to_owned(), levels(Some(Gvisor), None));
        policy.accounts.insert("strong".to_owned(), levels(Some(Gvisor), None));
        policy.accounts.insert("weak".to_owned(), levels(Some(Container), None));
        let auto = |account: &str, image: &str| of(policy.clone(), account).automatic(image);
        assert_eq!([auto("any", "any"), auto("any", "strong")], [Container, Gvisor]);
        assert_eq!([auto("strong", "any"), auto("weak", "strong")], [Gvisor, Gvisor]);
        let mut weaker = policy.clone();
        weaker.default = Gvisor;
        assert_eq!(of(weaker, "weak").automatic("any"), Container);
    }

    #[test]
    fn a_snapshot_is_no_way_around_a_minimum() {
        let rules = of(policy(Container, Container), "a").at_least(Gvisor);
        assert_eq!(rules.choose(IsolationChoice::Auto, "snap_12345678"), Ok(Gvisor));
        let refused = |rules: IsolationRules| {
            rules.choose(IsolationChoice::Container, "snap_12345678").unwrap_err().to_string()
        };
        assert_eq!(
            refused(rules),
            "isolation is 'container'; allowed: 'auto' or 'gvisor': the snapshot or template was made under 'gvisor', or from an \
             image that requires it"
        );
        // The operator refuses it in any case.
        let strict = of(policy(Container, Gvisor), "a").at_least(Gvisor);
        assert_eq!(refused(strict), "isolation is 'container'; allowed: 'auto' or 'gvisor'");
    }

    #[test]
    fn a_snapshot_of_a_host_with_other_rules_gets_the_minimum_of_its_image() {
        let mut policy = policy(Container, Container);
        policy.images.insert("strong".to_owned(), levels(None, Some(Gvisor)));
        let above = |isolation, images: &[&str]| of(policy.clone(), "a").above(isolation, images);
        assert_eq!(above(Container, &["theirs", "strong"]).minimum("snap_12345678"), Gvisor);
        assert_eq!(above(Container, &["theirs"]).minimum("snap_12345678"), Container);
        assert_eq!(above(Gvisor, &["theirs"]).minimum("snap_12345678"), Gvisor);
    }

    #[test]
    fn another_form_of_a_reference_is_no_way_around_a_minimum() {
        let mut policy = policy(Container, Container);
        policy.images.insert("python:3.12".to_owned(), levels(None, Some(Gvisor)));
        let rules = of(policy, "a");
        for image in ["python:3.12", "docker.io/library/python:3.12", "index.docker.io/python:3.12"] {
            assert_eq!(rules.minimum(image), Gvisor, "{image}");
        }
        assert_eq!(rules.minimum("python:3.13"), Container);
    }

    #[test]
    fn nobody_gets_less_than_any_minimum() {
        let with = |global, image, account| {
            let mut policy = policy(Container, global);
            policy.images.insert("i".to_owned(), levels(Some(Container), image));
            policy.accounts.insert("a".to_owned(), levels(None, account));
            of(policy, "a")
        };
        let strong = Some(Gvisor);
        for rules in [
            with(Gvisor, None, None),
            with(Container, strong, None),
            with(Container, None, strong),
            with(Gvisor, Some(Container), Some(Container)),
        ] {
            assert_eq!(rules.automatic("i"), Gvisor);
            let error = rules.choose(IsolationChoice::Container, "i").unwrap_err();
            assert_eq!(error.to_string(), "isolation is 'container'; allowed: 'auto' or 'gvisor'");
        }
        assert_eq!(with(Container, None, None).choose(IsolationChoice::Container, "i"), Ok(Container));
    }

    #[test]
    fn one_that_the_host_lacks_is_refused_with_those_it_has() {
        let rules = of(IsolationPolicy::default(), "a");
        let error = rules.choose(IsolationChoice::Gvisor, "i").unwrap_err();
        assert_eq!(error.to_string(), "isolation is 'gvisor'; allowed: 'auto' or 'container'");
    }
}
