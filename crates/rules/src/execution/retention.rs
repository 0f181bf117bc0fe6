//! Retention of finished executions of a sandbox.

/// How many of the oldest to remove, so that at most `max_ended` remain and together take at most `total_bytes`. `sizes` are those of all
/// finished executions, oldest first. The newest stays even if it is larger, unless `max_ended` is 0.
pub fn executions_to_drop(sizes: &[u64], max_ended: u32, total_bytes: u64) -> usize {
    let mut held = 0_u64;
    let fits = |(n, size): (usize, &u64)| {
        held = held.saturating_add(*size);
        (n == 0 || held <= total_bytes) && n < max_ended as usize
    };
    let staying = sizes.iter().rev().enumerate().map(fits).take_while(|fits| *fits).count();
    sizes.len() - staying
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, proptest};

    use super::*;

    #[test]
    fn the_oldest_go() {
        assert_eq!(executions_to_drop(&[], 3, 100), 0);
        assert_eq!(executions_to_drop(&[1, 1, 1], 3, 100), 0);
        assert_eq!(executions_to_drop(&[1, 1, 1, 1], 3, 100), 1);
        assert_eq!(executions_to_drop(&[60, 50, 50], 3, 100), 1);
        assert_eq!(executions_to_drop(&[1, 90, 50], 3, 100), 2);
        assert_eq!(executions_to_drop(&[1, 500], 3, 100), 1);
        assert_eq!(executions_to_drop(&[0, 500], 3, 100), 1);
        assert_eq!(executions_to_drop(&[1, 1], 0, 100), 2);
    }

    proptest! {
        #[test]
        fn what_stays_is_within_the_bounds(sizes in prop::collection::vec(0..1000u64, 0..30), max_ended in 0..20u32, total in 0..5000u64) {
            let staying = &sizes[executions_to_drop(&sizes, max_ended, total)..];
            prop_assert!(staying.len() <= max_ended as usize);
            prop_assert!(staying.len() <= 1 || staying.iter().sum::<u64>() <= total);
        }
    }
}
