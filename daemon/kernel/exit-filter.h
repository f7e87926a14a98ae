/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include <delayd/kinds.h>

#include "kernel/taskstats-decode.h"

#define EXIT_FILTER_MAX 128 /* instructions */

/*
 * Writes a socket filter (classic BPF) that drops exit records with no wait of any of the kinds, and
 * passes everything else: acknowledgements, and whatever does not look as expected. Returns its length;
 * 0 if no filter can be had: the layout is not proven, or the kinds have one that always waits (cpu).
 */
size_t exit_filter_build(
                struct sock_filter program[static EXIT_FILTER_MAX],
                uint16_t family,
                enum taskstats_layout layout,
                delay_kind_set kinds);
