/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cleanup.h"
#include "terminal.h"

static bool use_utf8;
static bool use_color;

static struct termios saved_termios;
static bool termios_saved;
static bool on_screen;

static bool environment_set(const char *name) {
        const char *value = getenv(name);

        return value && value[0];
}

bool terminal_is_tty(void) {
        return isatty(STDOUT_FILENO) > 0;
}

bool terminal_is_dumb(void) {
        const char *term = getenv("TERM");

        return !term || !term[0] || strcmp(term, "dumb") == 0;
}

static void setup_locale(void) {
        setlocale(LC_CTYPE, "");

        /* Where nobody chose a locale (cron, ssh, a bare container), UTF-8 is what terminals speak. */
        if (!environment_set("LC_ALL") && !environment_set("LC_CTYPE") && !environment_set("LANG"))
                setlocale(LC_CTYPE, "C.UTF-8");

        use_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void terminal_setup(enum color_mode mode) {
        setup_locale();

        if (mode == COLOR_AUTO)
                use_color = !environment_set("NO_COLOR") && !terminal_is_dumb() && terminal_is_tty();
        else
                use_color = mode == COLOR_ALWAYS;
}

bool terminal_is_utf8(void) {
        return use_utf8;
}

static size_t size_from_environment(const char *name, size_t otherwise) {
        const char *value = getenv(name);
        unsigned long n;

        n = value ? strtoul(value, NULL, 10) : 0;
        return n > 0 && n <= 10000 ? n : otherwise;
}

size_t terminal_columns(void) {
        struct winsize size;

        if (!terminal_is_tty())
                return 0;
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) >= 0 && size.ws_col > 0)
                return size.ws_col;

        return size_from_environment("COLUMNS", 80);
}

size_t terminal_rows(void) {
        struct winsize size;

        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) >= 0 && size.ws_row > 0)
                return size.ws_row;

        return size_from_environment("LINES", 24);
}

const char *style_on(enum style style) {
        static const char *const sequences[] = {
                [STYLE_PLAIN] = "",
                [STYLE_HEADER] = "\033[4m",
                [STYLE_BOLD] = "\033[1m",
                [STYLE_GOOD] = "\033[32m",
                [STYLE_WARNING] = "\033[33m",
                [STYLE_BAD] = "\033[1;31m",
        };

        return use_color ? sequences[style] : "";
}

const char *style_off(enum style style) {
        return use_color && style != STYLE_PLAIN ? "\033[0m" : "";
}

static int write_all(const char *text, size_t size) {
        while (size > 0) {
                ssize_t n;

                n = write(STDOUT_FILENO, text, size);
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n > 0) {
                        text += n;
                        size -= (size_t) n;
                }
        }

        return 0;
}

static int write_text(const char *text) {
        return write_all(text, strlen(text));
}

/* Keys come from standard input, which need not be a terminal: then there are none. */
static void enter_raw_mode(void) {
        struct termios raw;

        if (!termios_saved) {
                if (tcgetattr(STDIN_FILENO, &saved_termios) < 0)
                        return;
                termios_saved = true;
        }

        raw = saved_termios;
        raw.c_lflag &= ~(tcflag_t) (ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

int screen_enter(void) {
        enter_raw_mode();
        on_screen = true;
        return write_text("\033[?1049h\033[?25l\033[H\033[2J");
}

void screen_leave(void) {
        if (!on_screen)
                return;

        on_screen = false;
        (void) write_text("\033[?25h\033[?1049l");
        if (termios_saved)
                tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_termios);
}

int screen_draw(const char *text) {
        _cleanup_free_ char *frame = NULL;
        size_t size, rows = terminal_rows();
        FILE *stream;
        int r;

        stream = open_memstream(&frame, &size);
        if (!stream)
                return -ENOMEM;

        /* Overwriting line by line does not flicker, clearing first would. */
        fputs("\033[H", stream);
        for (size_t row = 0; row < rows && *text; row++) {
                size_t n = strcspn(text, "\n");

                fprintf(stream, "%s%.*s\033[K", row > 0 ? "\r\n" : "", (int) n, text);
                text += n;
                text += *text == '\n';
        }
        fputs("\033[J", stream);

        r = ferror(stream) ? -ENOMEM : 0;
        if (fclose(stream) != 0)
                r = -ENOMEM;

        return r < 0 ? r : write_all(frame, size);
}
