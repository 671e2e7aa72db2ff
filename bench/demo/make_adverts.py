#!/usr/bin/env python3
"""Writes the demo's adverts: rows of {"content", "summary"}, as JSON lines.

    python3 bench/demo/make_adverts.py >bench/demo/adverts.jsonl

The rows have the shape of an advert data set for clothes: content lists
attributes as "name#value" joined by "*", summary is a few sentences about
them.  Every word and sentence here was written for this project, so that the
sample may be shipped under the project's licence.  The output is committed;
tests/demo.sh checks that it is what this script writes, so the generator of
random numbers is the script's own and not a library's, which may change.
"""

import json
import sys

ROWS = 1440


class Random:
    """A linear congruential generator (Knuth's MMIX constants)."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def choice(self, items):
        return items[self.below(len(items))]


# Each value of an attribute, with the phrases that speak of it.
COLOURS = {
    "白色": ["干净的白色让人看着就清爽", "白色耐看又好搭，衬得气色明亮"],
    "黑色": ["黑色沉稳显瘦，怎么搭都不出错", "一身黑色利落干脆，自带几分酷劲"],
    "红色": ["明亮的红色喜气又提神", "红色热烈醒目，走到哪里都是焦点"],
    "蓝色": ["蓝色像雨后的天空，安静又清透", "深浅有度的蓝色看起来很舒服"],
    "绿色": ["绿色带着草木的气息，清新自然", "一抹绿色让整身造型活泼起来"],
    "灰色": ["灰色低调内敛，越看越有味道", "高级的灰色温和不挑肤色"],
    "粉色": ["粉色温柔甜美，满满的少女心", "淡淡的粉色衬得肤色白里透红"],
    "黄色": ["暖暖的黄色像晒过太阳一样", "黄色明快跳跃，给人好心情"],
    "卡其色": ["卡其色自带秋天的暖意", "卡其色大方耐脏，日常穿着很省心"],
}
MATERIALS = {
    "棉": ["柔软的棉布做成，贴身穿也不闷", "棉质面料吸汗透气，洗过几次依旧有型"],
    "亚麻": ["亚麻面料轻薄透风，夏天穿着格外凉快", "带有自然肌理的亚麻，摸起来干爽舒适"],
    "羊毛": ["羊毛面料厚实保暖，手感细腻", "加入羊毛织造，轻轻一裹就很暖和"],
    "牛仔布": ["结实的牛仔布耐磨耐穿，越洗越有味道", "牛仔布挺括有型，撑得起整个轮廓"],
    "真丝": ["真丝面料光泽柔和，垂感十足", "顺滑的真丝贴着皮肤，像水一样轻"],
    "针织": ["针织面料弹力适中，活动起来没有束缚", "细密的针织纹路柔软亲肤，久穿不易变形"],
    "雪纺": ["轻盈的雪纺随风飘动，走起路来很有仙气", "雪纺面料薄而不透，清凉又得体"],
    "灯芯绒": ["灯芯绒的竖条纹理很有年代感", "厚实的灯芯绒挡风保暖，触感绵密"],
}
STYLES = {
    "简约": ["没有多余的装饰，简约的设计反而耐看", "简约的线条干净利落"],
    "复古": ["浓浓的复古味道，像从老照片里走出来", "复古的细节让人想起旧时光"],
    "休闲": ["休闲的款式轻松自在，逛街郊游都合适", "周末穿上它，休闲又随性"],
    "通勤": ["通勤路上穿它，得体又不失活力", "开会见客都拿得出手，很适合通勤"],
    "甜美": ["甜美的气质藏在每个小细节里", "整体感觉甜美可爱，约会穿正好"],
    "街头": ["街头感十足，年轻人的态度一眼就能看见", "带着街头的随意和张扬"],
    "文艺": ["文艺的气息淡淡的，像一首小诗", "安静又文艺，适合带一本书出门"],
    "运动": ["运动感的剪裁让人想跑起来", "运动风格充满朝气，动静皆宜"],
}
PATTERNS = {
    "纯色": ["纯色的表面整洁大方", "纯色设计不挑搭配"],
    "条纹": ["竖向的条纹拉长了身形", "粗细相间的条纹富有节奏"],
    "格子": ["经典的格子永远不会过时", "错落的格子丰富了层次"],
    "碎花": ["细小的碎花像春天的田野", "零星的碎花点缀其间，浪漫又灵动"],
    "波点": ["俏皮的波点跳来跳去", "大小不一的波点很有童趣"],
    "刺绣": ["手工感的刺绣细致精巧", "胸前的刺绣是点睛的一笔"],
    "字母": ["醒目的字母印在上面，个性十足", "一行字母打破了单调"],
    "卡通": ["可爱的卡通形象让人会心一笑", "趣味的卡通图案减龄又活泼"],
}
FITS = {
    "宽松": ["宽松的版型包容各种身材", "宽松的轮廓遮肉又自在"],
    "修身": ["修身的剪裁贴合曲线", "修身的版型勾勒出好比例"],
    "直筒": ["直筒的线条从上到下一气呵成", "直筒版型利落不拖沓"],
    "收腰": ["收腰的设计让腰身更纤细", "恰到好处的收腰拉高了腰线"],
}
DETAILS = {
    "上衣": {
        "衣领型": {
            "圆领": ["圆领简单舒服，露出好看的脖子"],
            "翻领": ["翻领平整挺括，添了几分精神"],
            "立领": ["立领挡风又修饰脸型"],
            "连帽": ["连帽的设计既实用又显年轻"],
            "方领": ["方领露出锁骨，优雅大方"],
        },
        "衣袖型": {
            "长袖": ["长袖可以挽起来，随意又好看"],
            "短袖": ["清爽的短袖让手臂活动自如"],
            "泡泡袖": ["蓬起的泡泡袖带着公主般的可爱"],
            "喇叭袖": ["喇叭袖随手臂摆动，很有风情"],
            "落肩袖": ["落肩袖弱化了肩线，慵懒随性"],
        },
    },
    "裙": {
        "裙长": {
            "短裙": ["短裙露出双腿，显得活力十足"],
            "中长裙": ["中长裙刚好过膝，端庄不沉闷"],
            "长裙": ["长裙垂到脚踝，走动时裙摆生风"],
        },
        "裙下摆": {
            "荷叶边": ["层层荷叶边像浪花一样"],
            "开叉": ["侧边开叉方便迈步，也多了一点小心思"],
            "不规则": ["不规则的下摆随性又特别"],
        },
    },
    "裤": {
        "裤长": {
            "九分裤": ["九分裤露出脚踝，清爽显高"],
            "长裤": ["长裤盖住鞋面，双腿更显修长"],
            "短裤": ["短裤轻便凉快，海边度假少不了它"],
        },
        "裤腰型": {
            "高腰": ["高高的裤腰把腰线往上提，腿长一大截"],
            "松紧腰": ["松紧腰穿脱方便，久坐也不勒"],
            "系带": ["腰间系带可以调节松紧"],
        },
    },
}
KINDS = {
    "上衣": ("衣样式", ["衬衫", "卫衣", "风衣", "毛衣", "外套", "西装", "马甲", "夹克"]),
    "裙": ("裙型", ["百褶裙", "伞裙", "鱼尾裙", "背带裙", "直身裙", "蛋糕裙"]),
    "裤": ("裤型", ["阔腿裤", "牛仔裤", "西裤", "工装裤", "哈伦裤", "小脚裤"]),
}
OPENINGS = [
    "这款{name}很适合现在的天气。",
    "衣柜里少不了这样一件{name}。",
    "今天推荐的这款{name}，一眼就让人喜欢。",
    "想换个造型，不妨试试这款{name}。",
    "设计师把巧思都放进了这款{name}。",
    "喜欢{name}的朋友千万别错过它。",
]
CLOSINGS = [
    "搭配一双小白鞋，出门就是好心情。",
    "早晚微凉的时候穿，刚刚好。",
    "无论上班还是聚会，都能轻松应对。",
    "送给自己或者朋友，都是不错的选择。",
    "简单一穿，就有了自己的样子。",
    "喜欢就带它回家吧。",
]


def advert(random):
    """One row: which attributes it has, and what is said of them."""
    kind = random.choice(list(KINDS))
    form_name, forms = KINDS[kind]
    form = random.choice(forms)
    chosen = []  # of (name, value, phrases)
    for name, table in (("版型", FITS), ("材质", MATERIALS), ("颜色", COLOURS),
                        ("风格", STYLES), ("图案", PATTERNS)):
        if random.below(4) != 0:
            value = random.choice(list(table))
            chosen.append((name, value, table[value]))
    for name, table in DETAILS[kind].items():
        if random.below(2) != 0:
            value = random.choice(list(table))
            chosen.append((name, value, table[value]))
    content = [f"类型#{kind}"] + [f"{name}#{value}" for name, value, _ in chosen]
    content.insert(1 + random.below(len(content)), f"{form_name}#{form}")
    sentences = [random.choice(phrases) + "。" for _, _, phrases in chosen]
    summary = random.choice(OPENINGS).format(name=form)
    summary += "".join(sentences) + random.choice(CLOSINGS)
    return {"content": "*".join(content), "summary": summary}


def main():
    random = Random(20260801)
    seen = set()
    while len(seen) < ROWS:
        row = advert(random)
        if row["content"] not in seen:
            seen.add(row["content"])
            line = json.dumps(row, ensure_ascii=False) + "\n"
            sys.stdout.buffer.write(line.encode("utf-8"))


if __name__ == "__main__":
    main()
