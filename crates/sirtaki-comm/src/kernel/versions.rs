//! One loop, compiled several times: for any processor and for wider vector units, chosen at run time.
//!
//! The loops are plain Rust that the compiler vectorises; only the width differs. Multiplications and additions are
//! never fused, so all versions give the same bits and ranks on different processors agree.

/// Defines a function whose body is compiled for the baseline and for wider vector units.
///
/// Everything called inside has to be inlined, or it stays baseline code.
macro_rules! versioned {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$($generic:ident: $bound:path),*>($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $vis fn $name<$($generic: $bound),*>($($arg: $ty),*) {
            #[inline(always)]
            fn plain<$($generic: $bound),*>($($arg: $ty),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2<$($generic: $bound),*>($($arg: $ty),*) {
                plain::<$($generic),*>($($arg),*);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512<$($generic: $bound),*>($($arg: $ty),*) {
                plain::<$($generic),*>($($arg),*);
            }

            #[cfg(target_arch = "x86_64")]
            match $crate::kernel::versions::level() {
                // SAFETY: this processor has what the function needs; `level` checked.
                $crate::kernel::versions::Level::Avx512 => return unsafe { avx512::<$($generic),*>($($arg),*) },
                // SAFETY: as above.
                $crate::kernel::versions::Level::Avx2 => return unsafe { avx2::<$($generic),*>($($arg),*) },
                $crate::kernel::versions::Level::Baseline => {}
            }
            plain::<$($generic),*>($($arg),*);
        }
    };
}
pub(super) use versioned;

/// The vector units that loops are compiled for.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Baseline,
    Avx2,
    Avx512,
}

/// What this processor has. The standard library asks it once and remembers.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn level() -> Level {
    use std::arch::is_x86_feature_detected as has;
    if !has!("avx2") {
        Level::Baseline
    } else if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
        Level::Avx512
    } else {
        Level::Avx2
    }
}
