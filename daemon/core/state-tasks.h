/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "core/accounting.h"
#include "core/state-bytes.h"

/* The part of core/state.c that saves tasks. The getter returns -EBADMSG or -ENOMEM. */
void state_put_tasks(struct state_writer *w, const struct accounting *a);
int state_get_tasks(struct state_reader *r, struct accounting *a, delay_kind_set saved_kinds, uint64_t saved_nsec);
